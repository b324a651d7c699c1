// Element types: how numbers are stored, and what that costs in bytes.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rose::kernels {

// Plain numbers, and blocks of them that share a scale.
enum class DType : std::uint8_t {
  // One element at a time.
  f32,
  f16,
  bf16,
  i32,
  u8,
  // GGUF blocks of 32.
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  // GGUF blocks of 256.
  q4_k,
  q5_k,
  q6_k
};

struct DTypeInfo {
  std::string_view name;  ///< "bf16", "q4_k"
  int block_elements;     ///< elements that are stored together; 1 for plain numbers
  int block_bytes;        ///< bytes of one such block
};

const DTypeInfo& info(DType dtype);

/// Whether elements stand alone, so that one can be read without its neighbours.
inline bool is_plain(DType dtype) {
  return info(dtype).block_elements == 1;
}

/// Bytes of a row. Throws invalid_argument unless the row is a whole number of blocks.
std::size_t row_bytes(DType dtype, std::int64_t elements);

// Sixteen-bit and eight-bit floats, each a type of its own.
struct f16 {
  std::uint16_t bits;
  friend bool operator==(f16, f16) = default;  // of bits: NaN equals itself, -0 is not 0
};
struct bf16 {
  std::uint16_t bits;
  friend bool operator==(bf16, bf16) = default;
};
struct f8_e4m3 {
  std::uint8_t bits;
  friend bool operator==(f8_e4m3, f8_e4m3) = default;
};
struct f8_e5m2 {
  std::uint8_t bits;
  friend bool operator==(f8_e5m2, f8_e5m2) = default;
};

// bf16 is the upper half of an fp32.
constexpr float to_float(bf16 value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Round to nearest, ties to even; a NaN stays a NaN.
constexpr bf16 to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) {  // NaN: set its quiet bit, lest rounding make it infinite
    return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};
  }
  const std::uint32_t tie_to_even = bits >> 16 & 1;
  return {static_cast<std::uint16_t>((bits + 0x7fff + tie_to_even) >> 16)};
}

// fp16 by way of an exact scaling.
constexpr float to_float(f16 value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value.bits & 0x8000) << 16;
  const std::uint32_t rest = static_cast<std::uint32_t>(value.bits & 0x7fff) << 13;
  if (rest >= 0x7c00u << 13) return std::bit_cast<float>(sign | 0x7f800000 | rest);  // inf, NaN
  const float magnitude = std::bit_cast<float>(rest) * 0x1p112f;  // move the bias from 15 to 127
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

/// Round to nearest, ties to even; too large becomes infinite; a NaN stays a NaN.
constexpr f16 to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t rest = bits & 0x7fffffff;
  std::uint32_t half = 0;
  if (rest > 0x7f800000) {
    half = 0x7e00 | (rest >> 13 & 0x3ff);  // NaN
  } else if (rest >= 0x477ff000) {
    half = 0x7c00;                  // 65520 and above round to infinity
  } else if (rest >= 0x38800000) {  // normal, 2^-14 and above: drop 13 bits, rounding
    half = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  } else {  // subnormal: adding 0.5 puts the unit of the sum at 2^-24, and the hardware rounds
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

// bf16 by chance: up with the probability of the fraction.

/// Stochastic rounding by the low 16 bits of `random`. Exact values stay; a NaN stays a NaN.
constexpr bf16 to_bf16_stochastic(float value, std::uint32_t random) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return to_bf16(value);
  return {static_cast<std::uint16_t>((bits + (random & 0xffff)) >> 16)};
}

// The two eight-bit formats of the Open Compute Project.
float to_float(f8_e4m3 value) noexcept;
float to_float(f8_e5m2 value) noexcept;
/// Round to nearest, ties to even. E4M3 has no infinity: beyond 448 it saturates when `saturate`,
/// and is NaN otherwise. E5M2 beyond 57344 saturates, or is infinite.
f8_e4m3 to_f8_e4m3(float value, bool saturate = true) noexcept;
f8_e5m2 to_f8_e5m2(float value, bool saturate = true) noexcept;

}  // namespace rose::kernels
