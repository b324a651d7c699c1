// Turn queries and keys by their position.

#include "rose/kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "rose/core/error.h"

namespace rose::kernels {

// Give each pair its speed.
std::vector<float> rope_frequencies(std::int64_t head_dim, float theta) {
  std::vector<float> inv_freq(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    inv_freq[i] = 1.0f / static_cast<float>(
                             std::pow(static_cast<double>(theta), static_cast<double>(exponent)));
  }
  return inv_freq;
}

// Stretch the slow pairs for a longer context.
void stretch_linear(std::span<float> inv_freq, float factor) {
  for (float& f : inv_freq) f /= factor;
}

void stretch_llama3(std::span<float> inv_freq, float factor, std::int64_t original, float low,
                    float high) {
  const float positions = static_cast<float>(original);
  for (float& f : inv_freq) {
    const float wavelength = 2.0f * std::numbers::pi_v<float> / f;
    if (wavelength > positions / low) {
      f /= factor;
    } else if (wavelength >= positions / high) {
      const float smooth = (positions / wavelength - low) / (high - low);
      f = (1.0f - smooth) * f / factor + smooth * f;
    }
  }
}

void stretch_yarn(std::span<float> inv_freq, float theta, float factor, std::int64_t original,
                  float beta_fast, float beta_slow, bool truncate) {
  const double dim = 2.0 * static_cast<double>(inv_freq.size());
  const auto pair_that_turns = [&](float times) {  // within the original context
    const double positions =
        static_cast<double>(original) / (static_cast<double>(times) * 2.0 * std::numbers::pi);
    return dim * std::log(positions) / (2.0 * std::log(static_cast<double>(theta)));
  };
  double low = pair_that_turns(beta_fast), high = pair_that_turns(beta_slow);
  if (truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const float kept = 1.0f - static_cast<float>(ramp);
    inv_freq[i] = inv_freq[i] / factor * (1.0f - kept) + inv_freq[i] * kept;
  }
}

// Compute each position's sines and cosines once per pass.
void rope_table(std::span<const std::int32_t> positions, std::span<const float> inv_freq,
                float scale, std::span<float> cos, std::span<float> sin, core::ThreadPool& pool) {
  const std::size_t half = inv_freq.size();
  if (cos.size() != positions.size() * half || sin.size() != cos.size()) {
    throw core::Error(core::Code::invalid_argument, "cos and sin must hold [positions, D/2] values")
        .in("rope_table");
  }
  pool.for_range(
      static_cast<std::int64_t>(positions.size()), 16, [&](std::int64_t begin, std::int64_t end) {
        for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) {
          for (std::size_t i = 0; i < half; ++i) {
            const auto angle = static_cast<double>(static_cast<float>(positions[t]) *
                                                   inv_freq[i]);  // rounded to fp32
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
    throw core::Error(core::Code::invalid_argument,
                      "x must be [T, H, D] with even D, cos and sin [T, D/2]")
        .in("rope");
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
