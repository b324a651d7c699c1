// Compute exp and tanh the same way everywhere.

#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

/// Scalar twins of the vector functions in lanes-inl.h: the same operations in the same order, hence the same bits.
namespace rose::kernels {

// Split x into n ln 2 + r and let a polynomial do the rest.
namespace exp_constants {
inline constexpr float highest = 89.0f, lowest = -104.0f;  // beyond these the answer is inf or 0
inline constexpr float log2_e = 1.44269504088896341f;
inline constexpr float to_integer = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
inline constexpr float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                              4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
}  // namespace exp_constants

/// e^x within 2 units in the last place; inf above 88.72, gradual underflow below -87.33, NaN stays NaN.
inline float exp(float x) {
  namespace k = exp_constants;
  x = x > k::highest ? k::highest : x;
  x = x < k::lowest ? k::lowest : x;
  const float shifted = std::fma(x, k::log2_e, k::to_integer);
  const float n = shifted - k::to_integer;
  const float r = std::fma(n, -k::ln2_low, std::fma(n, -k::ln2_high, x));
  float p = k::c[0];
  for (int i = 1; i < 6; ++i) p = std::fma(p, r, k::c[i]);
  const float y = std::fma(p, r * r, r) + 1.0f;
  const auto i = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(k::to_integer);
  const std::int32_t half = i >> 1;  // two factors: 2^128 and 2^-150 are not floats
  const auto power = [](std::int32_t e) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
  };
  return y * power(half) * power(i - half);
}

// Take tanh from exp, and from its own series near zero.
namespace tanh_constants {
inline constexpr float small = 0.625f;
inline constexpr float c[] = {-5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f,
                              1.33314422036e-1f, -3.33332819422e-1f};
}  // namespace tanh_constants

/// tanh(x) within 2 units in the last place.
inline float tanh(float x) {
  namespace k = tanh_constants;
  const float magnitude = std::fabs(x);
  if (magnitude < k::small) {
    const float z = x * x;
    float p = k::c[0];
    for (int i = 1; i < 5; ++i) p = std::fma(p, z, k::c[i]);
    return std::copysign(std::fma(p * z, x, x), x);  // the sign of -0 survives
  }
  const float y = 1.0f - 2.0f / (exp(magnitude + magnitude) + 1.0f);
  return std::copysign(y, x);
}

}  // namespace rose::kernels
