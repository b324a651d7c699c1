// Keep keys and values in tensors.

#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace rose::kernels::autograd {

/// k and v [layers, pages, kv_heads, page_size, head_dim], f32, bf16 or f16; page_table int32 [sequences, entries]. Without gaps.
struct KvTensors {
  at::Tensor k, v, page_table;
};

/// Stores k and v [T, kv_heads, head_dim] at places, int32 [T, 2]: sequence and position; a negative position stores nothing. On a CPU k
/// and v are f32 and are rounded to the cache's type, on a GPU they have it.
void kv_append(const KvTensors& kv, int layer, const at::Tensor& k, const at::Tensor& v,
               const at::Tensor& places);

/// The reverse: {k, v}, [T, kv_heads, head_dim] of the cache's type; zeros for a negative position.
std::pair<at::Tensor, at::Tensor> kv_gather(const KvTensors& kv, int layer,
                                            const at::Tensor& places);

/// Copies pages, all layers: copies int32 [n, 2], from and to. Copy on write is this, and another entry in the table.
void kv_copy_pages(const KvTensors& kv, const at::Tensor& copies);

/// Rollover: growths int32 [n, 3], sequence, length and an offered page. Returns int32 [n], 1 where the page was taken.
at::Tensor kv_rollover(const KvTensors& kv, const at::Tensor& growths);

}  // namespace rose::kernels::autograd
