// Tests of the chapter "Activation memory".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/model/files/budget.h"
#include "rose/model/gpu_saved.h"

namespace rose::model {
namespace {

// The plan is the formula.
Config memory_config() {
  Config c;
  c.family = Family::gpt2, c.norm = NormKind::layernorm, c.activation = Activation::gelu_tanh;
  c.vocab_size = 50304, c.layers = 12, c.heads = c.kv_heads = 12, c.head_dim = 64;
  c.hidden = 768, c.ffn = 3072, c.max_positions = 1024;
  c.tied_head = c.qkv_bias = c.o_bias = c.mlp_bias = true;
  return c;
}

TEST(GpuSaved, IsAsLargeAsTheFormulaSays) {
  const Config c = memory_config();
  const std::int64_t t = 65536, r = 8192;
  // bytes of a token in all blocks, in units of C bf16 numbers, and statistics
  const auto formula = [&](std::int64_t kept, std::int64_t shared, bool statistics_kept) {
    const std::int64_t unit = 2 * c.hidden, stats = 4 * (4 + c.heads);
    const std::int64_t blocks = c.layers * (kept * unit + (statistics_kept ? stats : 0)) +
                                shared * unit + (statistics_kept ? 0 : stats);
    const std::int64_t rest = 7 * unit + 4 * 2 + 4 * 6;  // final, hidden, change, dx, d_qkv
    return t * (blocks + rest) + r * c.vocab_size * 6 + 0;
  };
  const auto bytes = [&](Recompute recompute) {
    return static_cast<std::int64_t>(
        GpuSaved::bytes(c, {.tokens = t, .head_rows = r, .recompute = recompute}));
  };
  const auto tell = [&](const char* name, Recompute recompute) {
    const double gigabytes = static_cast<double>(bytes(recompute)) / 1e9;
    labs::write_value("test-saved-formula", name, std::round(gigabytes * 10) / 10);
  };
  tell("nothing", Recompute::nothing);
  tell("selective", Recompute::selective);
  tell("blocks", Recompute::blocks);
  EXPECT_EQ(bytes(Recompute::nothing), formula(16, 0, true));
  EXPECT_EQ(bytes(Recompute::selective), formula(10, 6, true));
  EXPECT_EQ(bytes(Recompute::blocks), formula(1, 15, false));
}

}  // namespace
}  // namespace rose::model
