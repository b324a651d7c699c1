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
      {"f32", 1, 4}, {"f16", 1, 2}, {"bf16", 1, 2}, {"i32", 1, 4}, {"u8", 1, 1},
      {"q8_0", 32, 34},   // fp16 scale, 32 bytes
      {"q4_0", 32, 18},   // fp16 scale, 32 nibbles
      {"q4_1", 32, 20},   // fp16 scale and minimum, 32 nibbles
      {"q5_0", 32, 22},   // fp16 scale, 32 fifth bits, 32 nibbles
      {"q5_1", 32, 24},   // fp16 scale and minimum, 32 fifth bits, 32 nibbles
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
  float largest;      // finite
  unsigned infinite;  // the pattern that stands for "too large" when it does not saturate
};
constexpr Format e4m3{4, 3, 448.0f, 0x7f};    // no infinity: 0x7f is NaN
constexpr Format e5m2{5, 2, 57344.0f, 0x7c};  // as IEEE 754

float decode(const Format& format, unsigned bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1));
  const unsigned mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if ((bits & 0x7f) > format.infinite || (bits & 0x7f) == 0x7f) {
    return std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
  }
  if ((bits & 0x7f) == format.infinite) return sign * std::numeric_limits<float>::infinity();
  const unsigned hidden = exponent == 0 ? 0u : 1u << format.mantissa_bits;
  return sign * std::ldexp(static_cast<float>(hidden + mantissa),
                           std::max(exponent, 1) - bias - format.mantissa_bits);
}

unsigned encode(const Format& format, float value, bool saturate) {
  const unsigned sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7f;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = magnitude == 0 ? 1 - bias : std::max(std::ilogb(magnitude), 1 - bias);
  // Count in units of the last place; nearbyint rounds ties to even, and a carry into the next
  // power of two is just the next pattern, because patterns are ordered as their values are.
  float scaled = std::ldexp(std::isinf(magnitude) ? 0.0f : magnitude,
                            std::isinf(magnitude) ? 0 : format.mantissa_bits - exponent);
  const auto units = static_cast<unsigned>(std::nearbyint(scaled));
  const auto pattern = units + (static_cast<unsigned>(exponent + bias - 1) << format.mantissa_bits);
  if (std::isinf(magnitude) || decode(format, std::min(pattern, 0x7fu)) > format.largest ||
      pattern >= format.infinite) {
    return sign | (saturate ? encode(format, format.largest, true) : format.infinite);
  }
  return sign | pattern;
}

}  // namespace

float to_float(f8_e4m3 value) noexcept { return decode(e4m3, value.bits); }
float to_float(f8_e5m2 value) noexcept { return decode(e5m2, value.bits); }
f8_e4m3 to_f8_e4m3(float value, bool saturate) noexcept {
  return {static_cast<std::uint8_t>(encode(e4m3, value, saturate))};
}
f8_e5m2 to_f8_e5m2(float value, bool saturate) noexcept {
  return {static_cast<std::uint8_t>(encode(e5m2, value, saturate))};
}

}  // namespace rose::kernels
