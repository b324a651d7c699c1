// Write activations as integers that share an exponent.

#pragma once

#include <cstdint>

namespace rose::kernels {

inline constexpr std::int64_t fixed_block = 32;       ///< activations that share an exponent
inline constexpr float fixed_highest = 8'355'710.0f;  ///< 127 * (256^2 + 256 + 1) - 1

/// Thirty-two activations x = scale * a: the integers a in digits of base 256, each in [-128, 127].
/// Four consecutive activations share four words, in the form that the weights ask for:
///   bytes:  the leading digits of all four, their middle digits, their last digits, zeros
///   halves: per pair, two upper halves (leading and middle digit, 16 bits), two last digits (16 bits)
struct alignas(16) FixedBlock {
  float scale;        ///< NaN when an activation is not finite
  float sum;          ///< scale times the sum of the integers
  std::int32_t high;  ///< the sum of the upper halves
  std::int32_t low;   ///< the sum of the last digits
  std::int32_t words[32];
};
static_assert(sizeof(FixedBlock) == 144);

enum class FixedForm : std::uint8_t { bytes, halves };

/// What an integer stands for, and the factor that makes integers.
struct FixedScale {
  float scale, inverse;
};

/// For a block whose largest magnitude is given; NaN and 0 when that is not finite.
FixedScale fixed_scale(float largest);

/// Writes n activations, the last block filled with zeros, as (n + 31) / 32 blocks.
void to_fixed(const float* x, std::int64_t n, FixedForm form, FixedBlock* out);

}  // namespace rose::kernels
