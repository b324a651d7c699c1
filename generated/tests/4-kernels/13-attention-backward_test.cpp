// Tests of the chapter "Attention on the GPU, backward".

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

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/kernels/attention.h"
#include "rose/kernels/attention_backward.h"
#include "rose/kernels/gpu/attention_backward.h"

namespace rose::kernels {
namespace {

// Two keys, by hand and by the twin.
TEST(AttentionBackwardByHand, TwoKeys) {
  const float log3 = std::log(3.0f);
  // Two tokens; the first one's query and gradient are chosen not to matter.
  const std::vector<float> q{0, 1}, k{0, log3}, v{4, 8}, dout{0, 2};
  const std::vector<std::int32_t> rows{0, 2};
  const AttentionShape shape{1, 1, 1, 1.0f};
  std::vector<float> out(2), lse(2), dq(2), dk(2), dv(2), scratch;
  core::ThreadPool pool(1);
  attention(q, k, v, rows, shape, out, lse, pool);
  EXPECT_NEAR(out[1], 7, 1e-5);
  EXPECT_NEAR(lse[1], std::log(4.0f), 1e-6);
  attention_backward(q, k, v, out, lse, dout, rows, shape, dq, dk, dv, pool, scratch);
  EXPECT_NEAR(dv[0], 0.5, 1e-5);
  EXPECT_NEAR(dv[1], 1.5, 1e-5);
  EXPECT_NEAR(dk[0], -1.5, 1e-5);
  EXPECT_NEAR(dk[1], 1.5, 1e-5);
  EXPECT_NEAR(dq[1], 1.5 * static_cast<double>(log3), 1e-5);
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// Every tile once, and errors that name the argument.
TEST(AttentionBackwardPlan, HasEveryTileOnce) {
  const AttentionBackwardPlan plan =
      plan_attention_backward({6, 2, 64, 0.125f}, std::vector<std::int32_t>{0, 0, 65, 66, 200});
  // Rows of 0, 65, 1 and 134 tokens have 0, 2, 1 and 3 tiles of 64.
  EXPECT_EQ(plan.key_blocks, 6 * 2);
  EXPECT_EQ(plan.query_blocks, 6 * 6);
  std::set<std::array<std::int32_t, 3>> seen;
  for (std::int64_t i = 0; i < plan.query_blocks; ++i) {
    const auto at = static_cast<std::size_t>(plan.query_items + 4 * i);
    seen.insert({plan.words[at], plan.words[at + 1], plan.words[at + 2]});
  }
  EXPECT_EQ(seen.size(), 36U);
}

TEST(AttentionBackwardChecks, ErrorsNameTheArgument) {
  const auto argument_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return "nothing";
  };
  const std::vector<std::int32_t> offsets{0, 3};
  EXPECT_EQ(argument_of([&] { plan_attention_backward({4, 3, 64, 1.0f}, offsets); }), "shape");
  EXPECT_EQ(argument_of([&] { plan_attention_backward({4, 2, 80, 1.0f}, offsets); }), "shape");
  EXPECT_EQ(argument_of([&] { plan_attention_backward({4, 2, 64, 0.0f}, offsets); }), "shape");
  EXPECT_EQ(argument_of([&] { plan_attention_backward({4, 2, 64, 1.0f}, {}); }), "row_offsets");
  const AttentionBackwardPlan plan = plan_attention_backward({4, 2, 64, 0.125f}, offsets);
  alignas(256) static std::byte memory[1 << 14];
  const Matrix wide{memory, DType::bf16, 3, 256}, narrow{memory, DType::bf16, 3, 128};
  const AttentionSaved saved{wide, narrow, narrow, wide, nullptr};
  const auto run = [&](const AttentionSaved& s, const Matrix& dk) {
    return argument_of([&] {
      attention_backward(plan, s, wide, wide, dk, narrow, {memory, sizeof memory}, {});
    });
  };
  EXPECT_EQ(run({narrow, narrow, narrow, wide, nullptr}, narrow), "q");
  EXPECT_EQ(run(saved, wide), "dk");
  EXPECT_EQ(run(saved, narrow), "lse");
}

}  // namespace
}  // namespace rose::kernels::gpu
