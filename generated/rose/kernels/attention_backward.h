// Go back through attention.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/attention.h"

namespace rose::kernels {

/// Gradients of causal attention within each packed row (the packed form of `attention`).
/// q, out, dout, dq are [T, H, D]; k, v, dk, dv [T, Hkv, D]; lse [T, H] is what the forward pass saved.
/// dq, dk and dv are overwritten. Deterministic: threads divide (row, key head) pairs.
void attention_backward(std::span<const float> q, std::span<const float> k,
                        std::span<const float> v, std::span<const float> out,
                        std::span<const float> lse, std::span<const float> dout,
                        std::span<const std::int32_t> row_offsets, const AttentionShape& shape,
                        std::span<float> dq, std::span<float> dk, std::span<float> dv,
                        core::ThreadPool& pool, std::vector<float>& scratch);

}  // namespace rose::kernels
