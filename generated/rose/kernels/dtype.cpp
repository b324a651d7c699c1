// The table of element types, and the eight-bit floats.

#include "rose/kernels/dtype.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "rose/core/error.h"

namespace rose::kernels {

// Name, block and bytes of every type.
const DTypeInfo& info(DType dtype) {
  static constexpr std::array<DTypeInfo, 13> table = {{
      {"f32", 1, 4},
      {"f16", 1, 2},
      {"bf16", 1, 2},
      {"i32", 1, 4},
      {"u8", 1, 1},
      {"q8_0", 32, 34},    // fp16 scale, 32 bytes
      {"q4_0", 32, 18},    // fp16 scale, 32 nibbles
      {"q4_1", 32, 20},    // fp16 scale and minimum, 32 nibbles
      {"q5_0", 32, 22},    // fp16 scale, 32 fifth bits, 32 nibbles
      {"q5_1", 32, 24},    // fp16 scale and minimum, 32 fifth bits, 32 nibbles
      {"q4_k", 256, 144},  // fp16 scale and minimum, 8 six-bit pairs, 256 nibbles
      {"q5_k", 256, 176},  // the same and 256 fifth bits
      {"q6_k", 256, 210},  // 256 six-bit numbers, 16 eight-bit scales, fp16 scale
  }};
  return table.at(static_cast<std::size_t>(dtype));
}

std::size_t row_bytes(DType dtype, std::int64_t elements) {
  const DTypeInfo& type = info(dtype);
  if (elements < 0 || elements % type.block_elements != 0) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("a row of {} elements is no whole number of {} blocks of {}",
                                  elements, type.name, type.block_elements));
  }
  const std::int64_t blocks = elements / type.block_elements;
  if (blocks > std::numeric_limits<std::int64_t>::max() / type.block_bytes) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("a row of {} elements does not fit any memory", elements));
  }
  return static_cast<std::size_t>(blocks * type.block_bytes);
}

// One reading of the formula for both eight-bit formats.
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  unsigned beyond;    // the first pattern above the largest finite number
  bool has_infinity;  // whether that pattern is infinity, or NaN already
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
};
constexpr Format e4m3{4, 3, 0x7f, false};
constexpr Format e5m2{5, 2, 0x7c, true};

float decode(const Format& format, unsigned bits) {
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  const unsigned pattern = bits & 0x7f;
  if (pattern >= format.beyond) {
    const bool infinite = format.has_infinity && pattern == format.beyond;
    return std::copysign(
        infinite ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN(),
        sign);
  }
  const unsigned one = 1u << format.mantissa_bits;
  const int exponent = static_cast<int>(pattern / one);
  const unsigned mantissa = pattern % one + (exponent == 0 ? 0 : one);  // with the implied bit
  const int unit = std::max(exponent, 1) - format.bias() - format.mantissa_bits;
  return sign * std::ldexp(static_cast<float>(mantissa), unit);
}

unsigned encode(const Format& format, float value, bool saturate) {
  const unsigned sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const unsigned overflow = sign | (saturate ? format.beyond - 1 : format.beyond);
  if (std::isinf(value)) return overflow;
  const float magnitude = std::fabs(value);
  const int lowest = 1 - format.bias();
  const int exponent = magnitude == 0 ? lowest : std::max(std::ilogb(magnitude), lowest);
  // In units of the last place, an integer after rounding (ties to even). At least `one` in the
  // normal range, where it includes the implied bit: hence exponent - lowest, without a + 1.
  const float units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const auto steps = static_cast<unsigned>(exponent - lowest) << format.mantissa_bits;
  const unsigned pattern = steps + static_cast<unsigned>(units);
  return pattern < format.beyond ? sign | pattern : overflow;
}

}  // namespace

float to_float(f8_e4m3 value) noexcept {
  return decode(e4m3, value.bits);
}
float to_float(f8_e5m2 value) noexcept {
  return decode(e5m2, value.bits);
}
f8_e4m3 to_f8_e4m3(float value, bool saturate) noexcept {
  return {static_cast<std::uint8_t>(encode(e4m3, value, saturate))};
}
f8_e5m2 to_f8_e5m2(float value, bool saturate) noexcept {
  return {static_cast<std::uint8_t>(encode(e5m2, value, saturate))};
}

}  // namespace rose::kernels
