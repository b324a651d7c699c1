// Multiply activations by a matrix in panels.

#include "rose/kernels/panel_linear.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "rose/kernels/avx2.h"
#include "rose/kernels/fixed.h"
#include "rose/kernels/panels.h"

namespace rose::kernels {
namespace {

// Multiply a panel by one row, plainly.

/// The code of weight i, 0 <= i < group, of a row of a record.
template <PanelFormat F>
std::int32_t code(const std::byte* record, std::int64_t row, std::int64_t i) {
  const std::byte* at = record + F.codes_at() + 4 * row;
  const std::int64_t g = i / 4, j = i % 4;
  if constexpr (F.nibbles) {
    return std::to_integer<std::int32_t>(at[g / 2 * 32 + j] >> g % 2 * 4 & std::byte{15});
  } else {
    return static_cast<std::int8_t>(at[g * 32 + (j % 2 * 2 + j / 2)]);
  }
}

/// The upper half and the last digit of activation i of a block.
struct Halves {
  std::int32_t high, low;
};
Halves halves(const FixedBlock& block, FixedForm form, std::int64_t i) {
  if (form == FixedForm::bytes) {
    std::int8_t digits[4][4];
    std::memcpy(digits, block.words + i / 4 * 4, sizeof digits);
    return {digits[0][i % 4] * 256 + digits[1][i % 4], digits[2][i % 4]};
  }
  std::int16_t parts[2][2];  // of a pair: upper halves, last digits
  std::memcpy(parts, block.words + i / 2 * 2, sizeof parts);
  return {parts[0][i % 2], parts[1][i % 2]};
}

template <PanelFormat F>
float scale_at(const std::byte* at, std::int64_t row) {
  if constexpr (F.half_scales) {
    f16 half;
    std::memcpy(&half, at + 2 * row, sizeof half);
    return to_float(half);
  } else {
    float value;
    std::memcpy(&value, at + 4 * row, sizeof value);
    return value;
  }
}

template <PanelFormat F>
void panel_plain(const FixedBlock* x, const std::byte* panel, std::int64_t records, float* y) {
  constexpr FixedForm form = F.nibbles ? FixedForm::bytes : FixedForm::halves;
  std::fill_n(y, panel_rows, 0.0f);
  for (std::int64_t r = 0; r < records; ++r, panel += F.record_bytes()) {
    const FixedBlock& block = x[r * F.group / fixed_block];
    const std::int64_t from = r * F.group % fixed_block;
    for (std::int64_t row = 0; row < panel_rows; ++row) {
      std::int32_t high = -F.offset * block.high, low = -F.offset * block.low;
      for (std::int64_t i = 0; i < F.group; ++i) {
        const Halves a = halves(block, form, from + i);
        const std::int32_t q = code<F>(panel, row, i);
        high += q * a.high;
        low += q * a.low;
      }
      const float dot = std::fma(256.0f, static_cast<float>(high), static_cast<float>(low));
      y[row] = std::fma(scale_at<F>(panel, row), block.scale * dot, y[row]);
      if constexpr (F.minimum)
        y[row] = std::fma(scale_at<F>(panel + F.scale_bytes(), row), block.sum, y[row]);
    }
  }
}

}  // namespace

#if ROSE_KERNELS_AVX2
ROSE_BEGIN_AVX2;
namespace avx2 {

// Multiply nibbles by digits.

/// Eight rows' sums over one record: of the upper halves and of the last digits.
struct Sums {
  __m256i high, low;
};

/// sum += four unsigned codes of each row times four signed digits, added in pairs. The empty asm
/// keeps the compiler from regrouping the additions, for which there are too few registers.
HWY_INLINE void add_digits(__m256i& sum, __m256i codes, std::int32_t digits) {
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, _mm256_set1_epi32(digits)));
  asm("" : "+x"(sum));
}

/// R activations against 32 codes of eight rows. Sums of sixteen bits hold a block: 16 * 15 * 128 < 2^15.
template <int R>
HWY_INLINE void dot_nibbles(const std::byte* codes, const FixedBlock* const* x, std::int64_t at,
                            Sums* sums) {
  const __m256i mask = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
  __m256i leading[R], middle[R], last[R];
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) leading[r] = middle[r] = last[r] = _mm256_setzero_si256();
  HWY_UNROLL(4)
  for (int v = 0; v < 4; ++v) {
    __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 32 * v));
    const __m256i even = _mm256_and_si256(w, mask);
    w = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
    HWY_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      const std::int32_t* d = x[r][at].words + 8 * v;
      add_digits(leading[r], even, d[0]);
      add_digits(middle[r], even, d[1]);
      add_digits(last[r], even, d[2]);
      add_digits(leading[r], w, d[4]);
      add_digits(middle[r], w, d[5]);
      add_digits(last[r], w, d[6]);
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    sums[r].high = _mm256_add_epi32(_mm256_madd_epi16(leading[r], _mm256_set1_epi16(256)),
                                    _mm256_madd_epi16(middle[r], one));
    sums[r].low = _mm256_madd_epi16(last[r], one);
  }
}

// Multiply signed bytes by halves.

/// sum += two codes of each row times a pair of sixteen-bit halves.
HWY_INLINE void add_pair(__m256i& sum, __m256i codes, std::int32_t pair) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(codes, _mm256_set1_epi32(pair)));
  asm("" : "+x"(sum));
}

/// R activations against G codes of eight rows, from the `from`-th of the block.
template <int R, int G>
HWY_INLINE void dot_bytes(const std::byte* codes, const FixedBlock* const* x, std::int64_t at,
                          std::int64_t from, Sums* sums) {
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) sums[r].high = sums[r].low = _mm256_setzero_si256();
  HWY_UNROLL(8)
  for (int v = 0; v < G / 4; ++v) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 32 * v));
    const __m256i first = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
    const __m256i second = _mm256_srai_epi16(w, 8);
    HWY_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      const std::int32_t* d = x[r][at].words + from + 4 * v;
      add_pair(sums[r].high, first, d[0]);
      add_pair(sums[r].low, first, d[1]);
      add_pair(sums[r].high, second, d[2]);
      add_pair(sums[r].low, second, d[3]);
    }
  }
}

// Close a record: round once, scale, add.
template <PanelFormat F>
HWY_INLINE __m256 scales(const std::byte* at) {
  if constexpr (F.half_scales) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  } else {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
  }
}

/// y[r] [8] = the dot products of R rows with a panel; row r of x begins at x[r].
template <PanelFormat F, int R>
void panel(const FixedBlock* const* x, const std::byte* record, std::int64_t records,
           float (*y)[panel_rows]) {
  __m256 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < records; ++i, record += F.record_bytes()) {
    Sums sums[R];
    const std::int64_t at = i * F.group / fixed_block;
    if constexpr (F.nibbles) {
      dot_nibbles<R>(record + F.codes_at(), x, at, sums);
    } else {
      dot_bytes<R, static_cast<int>(F.group)>(record + F.codes_at(), x, at,
                                              i * F.group % fixed_block, sums);
    }
    const __m256 scale = scales<F>(record);
    HWY_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      const FixedBlock& block = x[r][at];
      __m256i high = sums[r].high, low = sums[r].low;
      if constexpr (F.offset != 0) {
        high = _mm256_sub_epi32(high, _mm256_set1_epi32(F.offset * block.high));
        low = _mm256_sub_epi32(low, _mm256_set1_epi32(F.offset * block.low));
      }
      const __m256 dot = _mm256_fmadd_ps(_mm256_set1_ps(256.0f), _mm256_cvtepi32_ps(high),
                                         _mm256_cvtepi32_ps(low));
      acc[r] = _mm256_fmadd_ps(scale, _mm256_mul_ps(_mm256_set1_ps(block.scale), dot), acc[r]);
      if constexpr (F.minimum) {
        acc[r] = _mm256_fmadd_ps(scales<F>(record + F.scale_bytes()), _mm256_set1_ps(block.sum),
                                 acc[r]);
      }
    }
  }
  for (int r = 0; r < R; ++r) _mm256_storeu_ps(y[r], acc[r]);
}

}  // namespace avx2
ROSE_END_AVX2;
#endif

// Give every panel all the rows.
namespace {

inline constexpr std::int64_t tile_rows = 4;  // rows of x that share an expanded weight

/// Dot products of `rows` rows, at most tile_rows, with one panel.
template <PanelFormat F>
void tile(const FixedBlock* const* x, std::int64_t rows, const std::byte* panel,
          std::int64_t records, float (*y)[panel_rows]) {
#if ROSE_KERNELS_AVX2
  if (have_avx2()) {
    switch (rows) {
      case 1: return avx2::panel<F, 1>(x, panel, records, y);
      case 4: return avx2::panel<F, 4>(x, panel, records, y);
      default: break;
    }
    for (std::int64_t r = 0; r < rows; ++r) avx2::panel<F, 1>(x + r, panel, records, y + r);
    return;
  }
#endif
  for (std::int64_t r = 0; r < rows; ++r) panel_plain<F>(x[r], panel, records, y[r]);
}

template <PanelFormat F>
void run(const FixedBlock* x, std::int64_t m, const MatrixView& w, const float* bias, float* y,
         std::int64_t stride, std::int64_t begin, std::int64_t end) {
  const std::int64_t records = w.cols / F.group, blocks = w.cols / fixed_block;
  // As many rows as half of a level-2 cache holds.
  const std::int64_t pass = std::clamp<std::int64_t>(
      (1 << 18) / (blocks * static_cast<std::int64_t>(sizeof(FixedBlock)) + 1) / 4 * 4, 4, 256);
  for (std::int64_t top = 0; top < m; top += pass) {
    for (std::int64_t p = begin; p < end; ++p) {
      const std::byte* panel = w.panels + p * records * F.record_bytes();
      const std::int64_t n = p * panel_rows, wide = std::min(panel_rows, w.rows - n);
      for (std::int64_t r = top; r < std::min(top + pass, m); r += tile_rows) {
        const std::int64_t rows = std::min({tile_rows, m - r, top + pass - r});
        const FixedBlock* at[tile_rows];
        for (std::int64_t i = 0; i < rows; ++i) at[i] = x + (r + i) * blocks;
        alignas(32) float dots[tile_rows][panel_rows];
        tile<F>(at, rows, panel, records, dots);
        for (std::int64_t i = 0; i < rows; ++i) {
          float* to = y + (r + i) * stride + n;
          for (std::int64_t j = 0; j < wide; ++j)
            to[j] = bias == nullptr ? dots[i][j] : dots[i][j] + bias[n + j];
        }
      }
    }
  }
}

}  // namespace

// Choose the code for a block type.
namespace {

constexpr FixedForm form_of(DType dtype) {
  return panel_format(dtype).nibbles ? FixedForm::bytes : FixedForm::halves;
}

/// Rows of panels [begin, end) of one projection; x is [m, K / 32] blocks, y its rows of the product.
void multiply(const FixedBlock* x, std::int64_t m, const Projection& p, float* y,
              std::int64_t begin, std::int64_t end) {
  const auto with = [&]<PanelFormat F>() {
    run<F>(x, m, p.w, p.bias, y, p.w.rows, begin, end);
  };
  switch (p.w.dtype) {
    case DType::q4_0: return with.operator()<panel_format(DType::q4_0)>();
    case DType::q4_1: return with.operator()<panel_format(DType::q4_1)>();
    case DType::q5_1: return with.operator()<panel_format(DType::q5_1)>();
    case DType::q4_k: return with.operator()<panel_format(DType::q4_k)>();
    case DType::q5_k: return with.operator()<panel_format(DType::q5_k)>();
    case DType::q6_k: return with.operator()<panel_format(DType::q6_k)>();
    default: return with.operator()<panel_format(DType::q8_0)>();
  }
}

}  // namespace

// Convert the activations once, then share out the panels.
void panel_linear(std::span<const float> x, std::int64_t m, std::span<const Projection> projections,
                  core::ThreadPool& pool) {
  thread_local std::vector<FixedBlock> scratch[2];
  constexpr std::int64_t most_rows = 512;  // converted at a time
  std::int64_t panels = 0, k = 0;
  bool wanted[2] = {};
  for (const Projection& p : projections) {
    if (p.w.panels == nullptr) continue;
    panels += (p.w.rows + panel_rows - 1) / panel_rows;
    k = p.w.cols;
    wanted[static_cast<int>(form_of(p.w.dtype))] = true;
  }
  const std::int64_t blocks = k / fixed_block;
  for (std::int64_t top = 0; top < m && panels > 0; top += most_rows) {
    const std::int64_t rows = std::min(most_rows, m - top);
    const FixedBlock* fixed[2] = {};
    for (const FixedForm form : {FixedForm::bytes, FixedForm::halves}) {
      const auto f = static_cast<std::size_t>(form);
      if (!wanted[f]) continue;
      const auto size = static_cast<std::size_t>(rows * blocks);
      if (scratch[f].size() < size) scratch[f].resize(size);
      fixed[f] = scratch[f].data();
      FixedBlock* out = scratch[f].data();
      pool.for_range(rows, 16'384 / (k + 1) + 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r)
          to_fixed(x.data() + (top + r) * k, k, form, out + r * blocks);
      });
    }
    const std::int64_t grain = std::max<std::int64_t>(1, 16'384 / (rows * k + 1));
    pool.for_range(panels, grain, [&](std::int64_t begin, std::int64_t end) {
      for (const Projection& p : projections) {
        if (p.w.panels == nullptr) continue;
        const std::int64_t own = (p.w.rows + panel_rows - 1) / panel_rows;
        const std::int64_t from = std::max<std::int64_t>(begin, 0), to = std::min(end, own);
        if (from < to)
          multiply(fixed[static_cast<int>(form_of(p.w.dtype))], rows, p,
                   p.y.data() + top * p.w.rows, from, to);
        begin -= own;
        end -= own;
      }
    });
  }
}

}  // namespace rose::kernels
