// Let every token read the tokens before it.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"
#include "rose/kernels/kv_view.h"

namespace rose::kernels {

/// Head counts of one attention layer; heads is a multiple of kv_heads (grouped-query attention).
struct AttentionShape {
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0.0f;  ///< multiplies each score, usually 1 / sqrt(head_dim)
};

/// Causal attention within each packed row, no cache: training.
/// q is [T, H, D], k and v are [T, Hkv, D]; row s holds tokens row_offsets[s] .. row_offsets[s + 1] - 1.
/// Token i of a row attends to tokens 0 .. i of that row. out is [T, H * D].
/// lse [T, H], when not empty, receives the log-sum-exp of each query's scores, which backward needs.
void attention(std::span<const float> q, std::span<const float> k, std::span<const float> v,
               std::span<const std::int32_t> row_offsets, const AttentionShape& shape,
               std::span<float> out, std::span<float> lse, core::ThreadPool& pool);

/// The same through a cache: the query at absolute position p of sequence s (row s of row_offsets and of the
/// page table) attends to the cached keys 0 .. p, which must have been appended. The bits equal the packed form's.
void attention(std::span<const float> q, const KvView& kv, int layer,
               std::span<const std::int32_t> row_offsets, std::span<const std::int32_t> positions,
               const AttentionShape& shape, std::span<float> out, std::span<float> lse,
               core::ThreadPool& pool);

/// Write k and v [T, Hkv, D] of the batch's tokens into the cache at their positions, rounded to its type.
void kv_append(std::span<const float> k, std::span<const float> v, const KvView& kv, int layer,
               std::span<const std::int32_t> row_offsets, std::span<const std::int32_t> positions,
               core::ThreadPool& pool);

}  // namespace rose::kernels
