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
HWY_INLINE void add_digits(__m256i& sum, __m256i codes, __m256i digits) {
  sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, digits));
  asm("" : "+x"(sum));
}

/// 32 codes of each row of P panels against R activations; the sums of a panel's R stand together.
/// Sums of sixteen bits hold a block: 16 * 15 * 128 < 2^15.
template <int P, int R>
HWY_INLINE void dot_nibbles(const std::byte* const* codes, const FixedBlock* const* x,
                            std::int64_t at, Sums* sums) {
  const __m256i mask = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
  __m256i digits[P * R][3];
  HWY_UNROLL(4)
  for (auto& of_pair : digits) {
    for (__m256i& sum : of_pair) sum = _mm256_setzero_si256();
  }
  HWY_UNROLL(8)
  for (int fours = 0; fours < 8; ++fours) {  // four codes: the low nibbles, then the high ones
    __m256i w[P];
    HWY_UNROLL(4)
    for (int p = 0; p < P; ++p) {
      w[p] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes[p] + fours / 2 * 32));
      w[p] = _mm256_and_si256(fours % 2 == 0 ? w[p] : _mm256_srli_epi16(w[p], 4), mask);
    }
    HWY_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      HWY_UNROLL(4)
      for (int i = 0; i < 3; ++i) {
        const __m256i four = _mm256_set1_epi32(x[r][at].words[4 * fours + i]);
        HWY_UNROLL(4)
        for (int p = 0; p < P; ++p) add_digits(digits[p * R + r][i], w[p], four);
      }
    }
  }
  HWY_UNROLL(4)
  for (int i = 0; i < P * R; ++i) {
    sums[i].high = _mm256_add_epi32(_mm256_madd_epi16(digits[i][0], _mm256_set1_epi16(256)),
                                    _mm256_madd_epi16(digits[i][1], one));
    sums[i].low = _mm256_madd_epi16(digits[i][2], one);
  }
}

// Multiply signed bytes by halves.

/// sum += two codes of each row times a pair of sixteen-bit halves.
HWY_INLINE void add_pair(__m256i& sum, __m256i codes, __m256i pair) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(codes, pair));
  asm("" : "+x"(sum));
}

/// G codes of each row of P panels, from the `from`-th of the block, against R activations.
template <int P, int R, int G>
HWY_INLINE void dot_bytes(const std::byte* const* codes, const FixedBlock* const* x,
                          std::int64_t at, std::int64_t from, Sums* sums) {
  HWY_UNROLL(4)
  for (int i = 0; i < P * R; ++i) sums[i].high = sums[i].low = _mm256_setzero_si256();
  HWY_UNROLL(16)
  for (int pair = 0; pair < G / 2; ++pair) {  // the even bytes, then the odd ones
    __m256i w[P];
    HWY_UNROLL(4)
    for (int p = 0; p < P; ++p) {
      w[p] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes[p] + pair / 2 * 32));
      w[p] = _mm256_srai_epi16(pair % 2 == 0 ? _mm256_slli_epi16(w[p], 8) : w[p], 8);
    }
    HWY_UNROLL(4)
    for (int r = 0; r < R; ++r) {
      const std::int32_t* words = x[r][at].words + from + 2 * pair;
      const __m256i high = _mm256_set1_epi32(words[0]), low = _mm256_set1_epi32(words[1]);
      HWY_UNROLL(4)
      for (int p = 0; p < P; ++p) {
        add_pair(sums[p * R + r].high, w[p], high);
        add_pair(sums[p * R + r].low, w[p], low);
      }
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

/// acc[r] += what a record of one panel contributes to R outputs of each of its rows.
template <PanelFormat F, int R>
HWY_INLINE void close(const std::byte* record, const FixedBlock* const* x, std::int64_t at,
                      const Sums* sums, __m256* acc) {
  const __m256 scale = scales<F>(record);
  HWY_UNROLL(4)
  for (int r = 0; r < R; ++r) {
    const FixedBlock& block = x[r][at];
    __m256i high = sums[r].high, low = sums[r].low;
    if constexpr (F.offset != 0) {
      high = _mm256_sub_epi32(high, _mm256_set1_epi32(F.offset * block.high));
      low = _mm256_sub_epi32(low, _mm256_set1_epi32(F.offset * block.low));
    }
    const __m256 dot =
        _mm256_fmadd_ps(_mm256_set1_ps(256.0f), _mm256_cvtepi32_ps(high), _mm256_cvtepi32_ps(low));
    acc[r] = _mm256_fmadd_ps(scale, _mm256_mul_ps(_mm256_set1_ps(block.scale), dot), acc[r]);
    if constexpr (F.minimum) {
      acc[r] =
          _mm256_fmadd_ps(scales<F>(record + F.scale_bytes()), _mm256_set1_ps(block.sum), acc[r]);
    }
  }
}

// Ask for what the next tile will read.

/// Begins to load `bytes` from P places, `stride` apart. An address that nobody may read does no harm.
template <int P, std::int64_t bytes>
HWY_INLINE void fetch_ahead(const std::byte* at, std::int64_t stride) {
  constexpr std::int64_t line = 64;
  HWY_UNROLL(8)
  for (std::int64_t i = 0; i < P * ((bytes + line - 1) / line); ++i) {
    const std::byte* place = at + i % P * stride + i / P * line;
    _mm_prefetch(reinterpret_cast<const char*>(place), _MM_HINT_T0);
  }
}

// Walk P panels and R rows of activations together.

/// y[p * R + r] [8] = the dot products of row x[r] with panel p; panels are `stride` bytes apart.
template <PanelFormat F, int P, int R>
void tile(const FixedBlock* const* x, const std::byte* panel, std::int64_t stride,
          std::int64_t records, float (*y)[panel_rows]) {
  __m256 acc[P * R];
  for (__m256& a : acc) a = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < records; ++i, panel += F.record_bytes()) {
    Sums sums[P * R];
    if constexpr (R == 1) fetch_ahead<P, F.record_bytes()>(panel + P * stride, stride);
    const std::byte* codes[P];
    HWY_UNROLL(4)
    for (int p = 0; p < P; ++p) codes[p] = panel + p * stride + F.codes_at();
    const std::int64_t at = i * F.group / fixed_block;
    if constexpr (F.nibbles) {
      dot_nibbles<P, R>(codes, x, at, sums);
    } else {
      constexpr int group = static_cast<int>(F.group);
      dot_bytes<P, R, group>(codes, x, at, i * group % fixed_block, sums);
    }
    HWY_UNROLL(4)
    for (int p = 0; p < P; ++p) close<F, R>(panel + p * stride, x, at, sums + p * R, acc + p * R);
  }
  for (int i = 0; i < P * R; ++i) _mm256_storeu_ps(y[i], acc[i]);
}

}  // namespace avx2
ROSE_END_AVX2;
#endif

// Cover panels and rows with tiles.
namespace {

inline constexpr std::int64_t most_rows = 4, most_panels = 2;  // of a tile

/// y[p * rows + r] [8] = row x[r] times panel p, for as many panels and rows as fit in a tile.
template <PanelFormat F>
void tile([[maybe_unused]] bool wide, const FixedBlock* const* x, std::int64_t rows,
          const std::byte* panel, std::int64_t panels, std::int64_t records,
          float (*y)[panel_rows]) {
  const std::int64_t stride = records * F.record_bytes();
#if ROSE_KERNELS_AVX2
  if (wide) {
    if (rows == 4) {
      for (std::int64_t p = 0; p < panels; ++p)
        avx2::tile<F, 1, 4>(x, panel + p * stride, stride, records, y + 4 * p);
    } else if (panels == 2 && rows == 1) {
      avx2::tile<F, 2, 1>(x, panel, stride, records, y);
    } else {
      for (std::int64_t i = 0; i < panels * rows; ++i)
        avx2::tile<F, 1, 1>(x + i % rows, panel + i / rows * stride, stride, records, y + i);
    }
    return;
  }
#endif
  for (std::int64_t i = 0; i < panels * rows; ++i)
    panel_plain<F>(x[i % rows], panel + i / rows * stride, records, y[i]);
}

template <PanelFormat F>
void run(const FixedBlock* x, std::int64_t m, const MatrixView& w, const float* bias, float* y,
         std::int64_t begin, std::int64_t end) {
  const std::int64_t records = w.cols / F.group, blocks = w.cols / fixed_block;
  const bool wide = have_avx2();
  // As many rows as half of a level-2 cache holds.
  const std::int64_t pass = std::clamp<std::int64_t>(
      (1 << 18) / (blocks * static_cast<std::int64_t>(sizeof(FixedBlock)) + 1) / 4 * 4, 4, 256);
  for (std::int64_t top = 0; top < m; top += pass) {
    for (std::int64_t p = begin; p < end; p += most_panels) {
      const std::byte* panel = w.panels + p * records * F.record_bytes();
      const std::int64_t panels = std::min(most_panels, end - p);
      for (std::int64_t r = top; r < std::min(top + pass, m); r += most_rows) {
        const std::int64_t rows = std::min({most_rows, m - r, top + pass - r});
        const FixedBlock* at[most_rows];
        for (std::int64_t i = 0; i < rows; ++i) at[i] = x + (r + i) * blocks;
        alignas(32) float dots[most_panels * most_rows][panel_rows];
        tile<F>(wide, at, rows, panel, panels, records, dots);
        for (std::int64_t i = 0; i < panels * rows; ++i) {
          const std::int64_t n = (p + i / rows) * panel_rows;
          float* to = y + (r + i % rows) * w.rows + n;
          for (std::int64_t j = 0; j < std::min(panel_rows, w.rows - n); ++j)
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
  const auto with = [&]<PanelFormat F>() { run<F>(x, m, p.w, p.bias, y, begin, end); };
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
  constexpr std::int64_t at_once = 512;  // rows
  std::int64_t panels = 0, k = 0;
  bool wanted[2] = {};
  for (const Projection& p : projections) {
    if (p.w.panels == nullptr) continue;
    panels += (p.w.rows + panel_rows - 1) / panel_rows;
    k = p.w.cols;
    wanted[static_cast<int>(form_of(p.w.dtype))] = true;
  }
  const std::int64_t blocks = k / fixed_block;
  for (std::int64_t top = 0; top < m && panels > 0; top += at_once) {
    const std::int64_t rows = std::min(at_once, m - top);
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
