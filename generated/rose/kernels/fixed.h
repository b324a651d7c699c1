// Write activations as integers that share an exponent.

#pragma once

#include <cstdint>

namespace rose::kernels {

inline constexpr std::int64_t fixed_block = 32;          ///< activations that share an exponent
inline constexpr std::int32_t fixed_highest = 8'355'711;  ///< 127 * (256^2 + 256 + 1)

/// Thirty-two activations x = scale * a: the integers a in digits of base 256, each in [-128, 127].
/// Four consecutive activations share four words, in the form that the weights ask for:
///   bytes:  the leading digits of all four, their middle digits, their last digits, zeros
///   halves: per pair, two upper halves (leading and middle digit, 16 bits), two last digits (16 bits)
struct alignas(16) FixedBlock {
  float scale;        ///< a power of two, or NaN when an activation is not finite
  float sum;          ///< scale times the sum of the integers
  std::int32_t high;  ///< the sum of the upper halves
  std::int32_t low;   ///< the sum of the last digits
  std::int32_t words[32];
};
static_assert(sizeof(FixedBlock) == 144);

enum class FixedForm : std::uint8_t { bytes, halves };

/// The power of two that brings the largest magnitude below fixed_highest, and not far below it.
float fixed_scale(float largest);

/// Writes n activations, the last block filled with zeros, as (n + 31) / 32 blocks.
void to_fixed(const float* x, std::int64_t n, FixedForm form, FixedBlock* out);

}  // namespace rose::kernels
