// An exercise of the chapter "Supervised fine-tuning and LoRA".

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

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "labs/evidence/values.h"
#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/rng.h"
#include "rose/kernels/dropout.h"
#include "rose/kernels/dtype.h"
#include "rose/kernels/gpu/dropout.h"
#include "rose/model/adapter_backward.h"
#include "rose/model/adapter_dropout.h"
#include "rose/model/gpu_adapters.h"
#include "rose/model/gpu_trained_adapter.h"
#include "rose/model/merge_adapter.h"
#include "rose/text/bpe_trainer.h"
#include "rose/trainer/chat_encoder.h"
#include "rose/trainer/chat_task.h"
#include "rose/trainer/conversation.h"
#include "rose/trainer/gpu_lora_compute.h"
#include "rose/trainer/lora_compute.h"
#include "rose/trainer/packed_sequences.h"
#include "rose/trainer/run.h"
#include "rose/trainer/task.h"

namespace rose::trainer {
namespace {

struct StateBytes {
  std::int64_t adapter, all;
};

/// Bytes of weights, gradients and two moments, in fp32, of one block's matrices.
StateBytes state_bytes(const model::Config& config, std::int64_t rank) {
  StateBytes out{};
  for (std::size_t i = 0; i < model::linears; ++i) {
    const auto size = model::linear_size(config, static_cast<model::Linear>(i));
    out.adapter += 16 * rank * (size.in + size.out) * (size.out > 0 ? 1 : 0);
    out.all += 16 * size.in * size.out;
  }
  return out;
}

TEST(LoraSize, IsSmall) {
  model::Config c;
  c.family = model::Family::llama;
  c.vocab_size = 64, c.layers = 1, c.hidden = 576, c.heads = 9, c.kv_heads = 3, c.head_dim = 64;
  c.ffn = 1536, c.max_positions = 64, c.tied_head = true;
  const StateBytes bytes = state_bytes(c, 8);
  const LoraCompute lora(model::random_weights(c, 1), {}, {.rank = 8}, 1);
  EXPECT_EQ(bytes.adapter, 16 * lora.trained());
  EXPECT_EQ(bytes.all, 16 * (576 * 576 * 2 + 576 * 192 * 2 + 3 * 576 * 1536));
  labs::write_value("lora-size-test", "percent",
                    100.0 * static_cast<double>(bytes.adapter) / static_cast<double>(bytes.all));
}

}  // namespace
}  // namespace rose::trainer
