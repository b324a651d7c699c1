// Attend over packed tensors.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/attention_backward.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {

/// A plan, and the workspace at whose front it was uploaded.
template <class Plan>
struct Planned {
  Plan plan;
  at::Tensor scratch;
  void* stream = nullptr;
};

/// Sequences that lie one behind the other: row s holds tokens row_offsets[s] .. row_offsets[s + 1] - 1. Made once per batch, given
/// to the attention of every layer; used by one thread at a time, and by one device.
class PackedRows {
 public:
  PackedRows(const AttentionShape& shape, std::vector<std::int32_t> row_offsets);

  const AttentionShape& shape() const { return shape_; }
  const std::vector<std::int32_t>& row_offsets() const { return row_offsets_; }
  std::int64_t tokens() const { return row_offsets_.back(); }

  const Planned<gpu::AttentionPlan>& forward(const Site& site);
  const Planned<gpu::AttentionBackwardPlan>& backward(const Site& site);

 private:
  AttentionShape shape_;
  std::vector<std::int32_t> row_offsets_;
  std::optional<Planned<gpu::AttentionPlan>> forward_;
  std::optional<Planned<gpu::AttentionBackwardPlan>> backward_;
};

/// Causal attention within each row: q [T, heads, head_dim], k and v [T, kv_heads, head_dim], out as q. f32 on a CPU; bf16, f16 or f32
/// on a GPU, where they may be parts of a wider buffer. Saves its inputs, its output and the log-sum-exp of each query.
at::Tensor attention(const std::shared_ptr<PackedRows>& rows, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v);

}  // namespace rose::kernels::autograd
