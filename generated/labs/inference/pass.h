// Run a pass on a GPU from host memory, for tests and benches.

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "rose/core/rng.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/model/forward.h"
#include "rose/model/gpu_forward.h"

namespace rose::labs {

/// A paged cache in device memory: `sequences` rows of a page table, whose pages lie in random order; page 0 is nobody's.
class DeviceCache {
 public:
  DeviceCache(const model::Config& config, std::int64_t sequences, std::int64_t capacity,
              int page_size = 16, std::uint64_t seed = 1,
              kernels::DType dtype = kernels::DType::bf16) {
    const std::int64_t stride = (capacity + page_size - 1) / page_size,
                       pages = sequences * stride + 1;
    std::vector<std::int32_t> table(static_cast<std::size_t>(pages - 1));
    std::iota(table.begin(), table.end(), 1);
    core::Rng rng(seed);
    for (std::size_t i = table.size(); i > 1; --i) {
      std::swap(table[i - 1], table[rng.below(static_cast<std::uint32_t>(i))]);
    }
    const std::int64_t elements =
        config.layers * pages * config.kv_heads * page_size * config.head_dim;
    k_ = kernels::gpu::Buffer(kernels::row_bytes(dtype, elements));
    v_ = kernels::gpu::Buffer(kernels::row_bytes(dtype, elements));
    k_.poison();
    v_.poison();
    table_ = kernels::gpu::Buffer::of(std::span<const std::int32_t>(table));
    view_ = {.k = k_.data(),
             .v = v_.data(),
             .dtype = dtype,
             .layers = static_cast<int>(config.layers),
             .kv_heads = static_cast<int>(config.kv_heads),
             .head_dim = static_cast<int>(config.head_dim),
             .page_size = page_size,
             .pages = pages,
             .page_table = table_.as<std::int32_t>(),
             .table_stride = stride};
  }
  const kernels::KvView& view() const { return view_; }
  void randomise() {  // for timing: a past that nobody computed
    fill_random(k_, kernels::DType::bf16, 1);
    fill_random(v_, kernels::DType::bf16, 2);
  }

 private:
  kernels::gpu::Buffer k_, v_, table_;
  kernels::KvView view_;
};

/// A model on a GPU, and room for a pass.
class GpuPass {
 public:
  GpuPass(const model::WeightSet& weights, std::int64_t tokens, std::int64_t rows,
          kernels::DType dtype = kernels::DType::bf16)
      : weights_(weights, dtype), workspace_(weights.config(), tokens, rows, false, true, dtype) {}

  const model::GpuWeights& weights() const { return weights_; }
  model::GpuWorkspace& workspace() { return workspace_; }

  /// Logits [R, V] of the tokens named by `wanted`, or of all. With a cache, sequence s is row first_row + s of its table.
  std::vector<float> run(const model::Batch& batch, const DeviceCache* cache,
                         std::span<const std::int32_t> wanted = {}, std::int32_t first_row = 0) {
    using kernels::gpu::Buffer;
    const model::Config& config = weights_.config();
    std::vector<kernels::KvPlace> places;
    std::vector<std::int32_t> lengths;
    for (std::size_t s = 0; s + 1 < batch.row_offsets.size(); ++s) {
      for (auto t = batch.row_offsets[s]; t < batch.row_offsets[s + 1]; ++t) {
        places.push_back({first_row + static_cast<std::int32_t>(s),
                          batch.positions[static_cast<std::size_t>(t)]});
      }
      const auto end = static_cast<std::size_t>(batch.row_offsets[s + 1]);
      lengths.push_back(end == 0 ? 0 : batch.positions[end - 1] + 1);
    }
    if (cache == nullptr) lengths.clear();
    const auto plan =
        kernels::gpu::plan_attention(model::attention_shape(config), batch.row_offsets, lengths);
    const Buffer ids = Buffer::of(batch.ids), positions = Buffer::of(batch.positions),
                 on_places = Buffer::of(std::span<const kernels::KvPlace>(places)),
                 on_wanted = Buffer::of(wanted), attention(plan.workspace_bytes());
    kernels::gpu::upload(plan, attention.workspace(), {});
    model::GpuBatch on_device{.tokens = static_cast<std::int64_t>(batch.ids.size()),
                              .ids = ids.as<std::int32_t>(),
                              .positions = positions.as<std::int32_t>(),
                              .places = on_places.as<kernels::KvPlace>(),
                              .plan = &plan,
                              .attention = attention.workspace()};
    kernels::KvView view;
    if (cache != nullptr) {
      view = cache->view();
      on_device.kv = &view;
    }
    if (!wanted.empty()) on_device.logit_tokens = on_wanted.as<std::int32_t>();
    const auto rows = wanted.empty() ? on_device.tokens : static_cast<std::int64_t>(wanted.size());
    const kernels::DType dtype = weights_.dtype();
    const Buffer hidden(kernels::row_bytes(dtype, rows * config.hidden)),
        out(static_cast<std::size_t>(rows * config.vocab_size) * 4);
    const kernels::gpu::Matrix states{hidden.data(), dtype, rows, config.hidden};
    forward(weights_, on_device, workspace_, states, {});
    logits(weights_, states, workspace_, {out.data(), kernels::DType::f32, rows, config.vocab_size},
           {});
    kernels::gpu::synchronize({});
    return out.values<float>();
  }

 private:
  model::GpuWeights weights_;
  model::GpuWorkspace workspace_;
};

}  // namespace rose::labs
