// A checkpoint with the shape of Qwen3-0.6B and random weights.

#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/names.h"
#include "rose/model/weights.h"

namespace rose::labs {

/// Says so when a bench cannot run here.
inline bool no_gpu(const char* bench) {
  if (kernels::gpu::available()) return false;
  std::fprintf(stderr, "%s: there is no GPU\n", bench);
  return true;
}

/// What a record of this shape says of itself, and what its bench adds.
inline boost::json::object qwen3_record(boost::json::object added, const char* laws = "on") {
  added["shape"] = "Qwen3-0.6B, random weights, bf16";
  added["laws"] = laws;
  return added;
}

inline model::Config qwen3_600m() {
  model::Config c;
  c.family = model::Family::qwen3;
  c.vocab_size = 151936, c.layers = 28, c.heads = 16, c.kv_heads = 8, c.head_dim = 128;
  c.hidden = 1024, c.ffn = 3072, c.max_positions = 40960;
  c.norm_eps = 1e-6f, c.rope_theta = 1e6f, c.qk_norm = true, c.tied_head = true;
  return c;
}
/// Matrices are N(0, 0.02) in bf16, norms are ones.
inline std::shared_ptr<const model::WeightSet> random_bf16_weights(const model::Config& config) {
  struct Pool {
    std::vector<kernels::bf16> normal;
    std::vector<float> ones;
  };
  const auto pool = std::make_shared<Pool>();
  const auto expected = model::expected_tensors(config);
  std::int64_t largest = 0;
  model::Checkpoint checkpoint;
  checkpoint.path = "random";
  checkpoint.config = config;
  for (const auto& tensor : expected) {
    checkpoint.tensors.push_back({.name = tensor.name, .shape = tensor.shape, .owner = pool});
    largest = std::max(largest, checkpoint.tensors.back().elements());
  }
  constexpr std::int64_t step = 8, shift = 1 << 14;
  const auto tensors = static_cast<std::int64_t>(expected.size());
  pool->normal.resize(static_cast<std::size_t>(largest + tensors * shift));
  pool->ones.assign(static_cast<std::size_t>(largest), 1.0f);
  const auto groups = static_cast<std::int64_t>(pool->normal.size()) / step;
  core::default_pool().for_range(groups, 1 << 16, [&](std::int64_t begin, std::int64_t end) {
    core::Rng rng(1, static_cast<std::uint64_t>(begin));
    for (std::int64_t i = begin * step; i < end * step; ++i) {
      pool->normal[static_cast<std::size_t>(i)] = kernels::to_bf16(0.02f * rng.normal());
    }
  });
  std::int64_t at = 0;
  for (model::TensorInfo& tensor : checkpoint.tensors) {
    const bool matrix = tensor.shape.size() == 2;
    tensor.dtype = matrix ? kernels::DType::bf16 : kernels::DType::f32;
    tensor.data = matrix ? reinterpret_cast<const std::byte*>(pool->normal.data() + at * shift)
                         : reinterpret_cast<const std::byte*>(pool->ones.data());
    tensor.bytes = static_cast<std::size_t>(tensor.elements() * (matrix ? 2 : 4));
    ++at;
  }
  return model::load_weights(checkpoint);
}

}  // namespace rose::labs
