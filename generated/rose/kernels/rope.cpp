#include "rose/kernels/rope.h"

#include <cmath>
#include <cstddef>

#include "rose/core/error.h"

namespace rose::kernels {

// Give each pair its speed.
std::vector<float> rope_frequencies(std::int64_t head_dim, float theta) {
  std::vector<float> inv_freq(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(head_dim);
    inv_freq[i] = static_cast<float>(1.0 / std::pow(static_cast<double>(theta), exponent));
  }
  return inv_freq;
}

// Compute each position's sines and cosines once per pass.
void rope_table(std::span<const std::int32_t> positions, std::span<const float> inv_freq, float scale,
                std::span<float> cos, std::span<float> sin, core::ThreadPool& pool) {
  const std::size_t half = inv_freq.size();
  if (cos.size() != positions.size() * half || sin.size() != cos.size()) {
    throw core::Error(core::Code::invalid_argument, "cos and sin must hold [positions, D/2] values").in("rope_table");
  }
  pool.for_range(static_cast<std::int64_t>(positions.size()), 16, [&](std::int64_t begin, std::int64_t end) {
    for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) {
      for (std::size_t i = 0; i < half; ++i) {
        const auto angle = static_cast<double>(static_cast<float>(positions[t]) * inv_freq[i]);  // rounded to fp32
        cos[t * half + i] = static_cast<float>(std::cos(angle)) * scale;
        sin[t * half + i] = static_cast<float>(std::sin(angle)) * scale;
      }
    }
  });
}

// Rotate each pair.
void rope(std::span<float> x, std::int64_t tokens, std::int64_t heads, std::int64_t head_dim,
          std::span<const float> cos, std::span<const float> sin, core::ThreadPool& pool) {
  const std::int64_t half = head_dim / 2;
  if (head_dim % 2 != 0 || x.size() != static_cast<std::size_t>(tokens * heads * head_dim) ||
      cos.size() != static_cast<std::size_t>(tokens * half) || sin.size() != cos.size()) {
    throw core::Error(core::Code::invalid_argument, "x must be [T, H, D] with even D, cos and sin [T, D/2]").in("rope");
  }
  pool.for_range(tokens, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float *c = cos.data() + t * half, *s = sin.data() + t * half;
      for (std::int64_t h = 0; h < heads; ++h) {
        float* first = x.data() + (t * heads + h) * head_dim;
        float* second = first + half;
        for (std::int64_t i = 0; i < half; ++i) {
          const float a = first[i], b = second[i];
          first[i] = a * c[i] - b * s[i];
          second[i] = b * c[i] + a * s[i];
        }
      }
    }
  });
}

}  // namespace rose::kernels
