// Write activations as integers that share an exponent.

#include "rose/kernels/fixed.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "rose/kernels/avx2.h"

namespace rose::kernels {

// Let the largest magnitude fill the range.
FixedScale fixed_scale(float largest) {
  if (!(largest < std::numeric_limits<float>::infinity())) return {std::nanf(""), 0.0f};
  largest = std::max(largest, 0x1p-100f);  // so that the inverse is finite
  return {largest / fixed_highest, fixed_highest / largest};
}

namespace {

// Cut an integer into digits.
std::uint32_t word(std::int32_t a, std::int32_t b) {
  return (static_cast<std::uint32_t>(a) & 0xffffu) | static_cast<std::uint32_t>(b) << 16;
}

void write_block(const float* x, FixedForm form, FixedBlock& out) {
  float largest = 0.0f;
  bool finite = true;
  for (std::int64_t i = 0; i < fixed_block; ++i) {
    finite = finite && std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  const FixedScale unit = fixed_scale(finite ? largest : std::nanf(""));
  out.scale = unit.scale;
  std::int32_t high[fixed_block], low[fixed_block];
  out.high = out.low = 0;
  for (std::int64_t i = 0; i < fixed_block; ++i) {
    const auto a = finite ? static_cast<std::int32_t>(std::nearbyint(x[i] * unit.inverse)) : 0;
    high[i] = (a + 128) >> 8;  // rounds down, so that what is left is in [-128, 127]
    low[i] = a - (high[i] << 8);
    out.high += high[i];
    out.low += low[i];
  }
  out.sum = out.scale * static_cast<float>((out.high << 8) + out.low);
  for (std::int64_t g = 0; g < fixed_block; g += 4) {
    if (form == FixedForm::halves) {
      for (std::int64_t p = 0; p < 4; p += 2) {
        out.words[g + p] = std::bit_cast<std::int32_t>(word(high[g + p], high[g + p + 1]));
        out.words[g + p + 1] = std::bit_cast<std::int32_t>(word(low[g + p], low[g + p + 1]));
      }
      continue;
    }
    std::int8_t digits[4][4] = {};
    for (std::int64_t j = 0; j < 4; ++j) {
      const std::int32_t leading = (high[g + j] + 128) >> 8;
      digits[0][j] = static_cast<std::int8_t>(leading);
      digits[1][j] = static_cast<std::int8_t>(high[g + j] - (leading << 8));
      digits[2][j] = static_cast<std::int8_t>(low[g + j]);
    }
    std::memcpy(out.words + g, digits, sizeof digits);
  }
}

}  // namespace

// Cut eight integers at a time.
#if ROSE_KERNELS_AVX2
ROSE_BEGIN_AVX2;
namespace avx2 {

HWY_INLINE std::int32_t total(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

void write_block(const float* x, FixedForm form, FixedBlock& out) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 v[4];
  __m256i largest = _mm256_setzero_si256();  // magnitudes are ordered as their bits are
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    largest = _mm256_max_epi32(largest, _mm256_castps_si256(_mm256_and_ps(v[i], magnitude)));
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  const FixedScale unit = fixed_scale(std::bit_cast<float>(_mm_cvtsi128_si32(m)));
  out.scale = unit.scale;
  const bool finite = unit.inverse != 0.0f;
  const __m256 inverse = _mm256_set1_ps(unit.inverse);
  const __m256i half = _mm256_set1_epi32(128), all = _mm256_set1_epi32(0x808080);
  __m256i sum = _mm256_setzero_si256(), high_sum = sum;
  for (int i = 0; i < 4; ++i) {
    const __m256i a =
        finite ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)) : _mm256_setzero_si256();
    const __m256i high = _mm256_srai_epi32(_mm256_add_epi32(a, half), 8);
    sum = _mm256_add_epi32(sum, a);
    high_sum = _mm256_add_epi32(high_sum, high);
    __m256i words;
    if (form == FixedForm::bytes) {  // biased by 128 each, the digits are the bytes of the sum
      const __m256i order = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1));
      words = _mm256_shuffle_epi8(_mm256_xor_si256(_mm256_add_epi32(a, all), all), order);
    } else {
      const __m256i low = _mm256_sub_epi32(a, _mm256_slli_epi32(high, 8));
      const __m256i both = _mm256_or_si256(_mm256_and_si256(high, _mm256_set1_epi32(0xffff)),
                                           _mm256_slli_epi32(low, 16));
      const __m256i order = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
      words = _mm256_shuffle_epi8(both, order);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.words + 8 * i), words);
  }
  out.high = total(high_sum);
  out.low = total(sum) - (out.high << 8);
  out.sum = out.scale * static_cast<float>((out.high << 8) + out.low);
}

}  // namespace avx2
ROSE_END_AVX2;
#endif

void to_fixed(const float* x, std::int64_t n, FixedForm form, FixedBlock* out) {
  [[maybe_unused]] const bool wide = have_avx2();
  for (std::int64_t i = 0; i < n; i += fixed_block, ++out) {
    float padded[fixed_block];
    const float* from = x + i;
    if (n - i < fixed_block) {
      std::fill(std::copy_n(from, n - i, padded), padded + fixed_block, 0.0f);
      from = padded;
    }
#if ROSE_KERNELS_AVX2
    if (wide) {
      avx2::write_block(from, form, *out);
      continue;
    }
#endif
    write_block(from, form, *out);
  }
}

}  // namespace rose::kernels
