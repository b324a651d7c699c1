// Turn queries and keys by their position.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// theta^(-2i/D) for i in [0, D/2): how far pair i turns from one position to the next, in radians.
std::vector<float> rope_frequencies(std::int64_t head_dim, float theta);

/// Stretch the frequencies of a model for a context `factor` times as long as the `original` one it was trained for:
/// all of them alike; slow pairs only, as Llama 3 does; or along YaRN's ramp between fast and slow pairs.
void stretch_linear(std::span<float> inv_freq, float factor);
void stretch_llama3(std::span<float> inv_freq, float factor, std::int64_t original, float low,
                    float high);
void stretch_yarn(std::span<float> inv_freq, float theta, float factor, std::int64_t original,
                  float beta_fast, float beta_slow, bool truncate);

/// cos and sin of positions[t] * inv_freq[i], both [T, D/2], each times `scale`
/// (YaRN's attention factor; 1 otherwise). Computed once per forward pass, used by every layer.
void rope_table(std::span<const std::int32_t> positions, std::span<const float> inv_freq,
                float scale, std::span<float> cos, std::span<float> sin, core::ThreadPool& pool);

/// Rotate x [T, H, D] in place: element i pairs with element i + D/2 (the "half" layout of Llama's successors).
/// cos and sin are [T, D/2]. The inverse rotation, which backward needs, is the same call with sin negated.
void rope(std::span<float> x, std::int64_t tokens, std::int64_t heads, std::int64_t head_dim,
          std::span<const float> cos, std::span<const float> sin, core::ThreadPool& pool);

}  // namespace rose::kernels
