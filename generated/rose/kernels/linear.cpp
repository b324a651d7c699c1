// Multiply activations by a weight matrix of any storage type.

#include "rose/kernels/linear.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/linear.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "rose/kernels/blocks.h"
#include "rose/kernels/lanes-inl.h"
#include "rose/kernels/quant.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// Expand the commonest blocks a register at a time.
template <class V>
HWY_INLINE Vec to_floats(V codes) {
  return hn::ConvertTo(Tag(), hn::PromoteTo(hn::RebindToSigned<Tag>(), codes));
}

/// out[i] = (code i + shift) * d + m over one block, low nibbles first; an m of zero changes nothing.
HWY_INLINE void widen_nibbles(const std::uint8_t* q, float d, float shift, float m, float* out) {
  const hn::Rebind<std::uint8_t, Tag> bytes;
  for (std::int64_t j = 0; j < 16; j += width) {
    const auto both = hn::LoadU(bytes, q + j);
    const Vec low = hn::Add(to_floats(hn::And(both, hn::Set(bytes, std::uint8_t{15}))), set(shift));
    const Vec high = hn::Add(to_floats(hn::ShiftRight<4>(both)), set(shift));
    store(hn::Add(hn::Mul(low, set(d)), set(m)), out + j);
    store(hn::Add(hn::Mul(high, set(d)), set(m)), out + 16 + j);
  }
}

void widen(DType dtype, const std::byte* from, float* out, std::int64_t count) {
  if (dtype == DType::q4_1) {
    const auto* block = reinterpret_cast<const BlockQ4_1*>(from);
    for (std::int64_t i = 0; i < count; i += 32, ++block)
      widen_nibbles(block->q, to_float(block->d), 0.0f, to_float(block->m), out + i);
  } else if (dtype == DType::q4_0) {
    const auto* block = reinterpret_cast<const BlockQ4_0*>(from);
    for (std::int64_t i = 0; i < count; i += 32, ++block)
      widen_nibbles(block->q, to_float(block->d), -8.0f, 0.0f, out + i);
  } else if (dtype == DType::q8_0) {
    const hn::Rebind<std::int8_t, Tag> bytes;
    const auto* block = reinterpret_cast<const BlockQ8_0*>(from);
    for (std::int64_t i = 0; i < count; i += 32, ++block) {
      const Vec d = set(to_float(block->d));
      for (std::int64_t j = 0; j < 32; j += width)
        store(hn::Mul(to_floats(hn::LoadU(bytes, block->q + j)), d), out + i + j);
    }
  } else {
    dequantize_row(dtype, from, out, count);
  }
}

// Advance a small tile of dot products together.

/// sums[r * C + c] += x[r] . w[c] over `count` elements: R rows of activations against C rows of weights.
template <int R, int C>
HWY_INLINE void accumulate(const float* const* x, const float* const* w, std::int64_t count,
                           Sum16* sums) {
  Sum16 s[R * C];
  HWY_UNROLL(8)
  for (int i = 0; i < R * C; ++i) s[i] = sums[i];
  const auto step = [&](const float* const* a, const float* const* b, std::int64_t k) HWY_ATTR {
    HWY_UNROLL(4)
    for (int p = 0; p < parts; ++p) {
      Vec wide[C];
      HWY_UNROLL(4)
      for (int c = 0; c < C; ++c) wide[c] = load(b[c] + k + p * width);
      HWY_UNROLL(4)
      for (int r = 0; r < R; ++r) {
        const Vec row = load(a[r] + k + p * width);
        HWY_UNROLL(4)
        for (int c = 0; c < C; ++c) s[r * C + c].part[p] = fma(row, wide[c], s[r * C + c].part[p]);
      }
    }
  };
  std::int64_t k = 0;
  for (; k + numerics::lanes <= count; k += numerics::lanes) step(x, w, k);
  if (k < count) {  // the last, partial sixteen: missing elements are zeros
    float xs[R][numerics::lanes] = {}, ws[C][numerics::lanes] = {};
    const float *xp[R], *wp[C];
    for (int r = 0; r < R; ++r) xp[r] = std::copy(x[r] + k, x[r] + count, xs[r]) - (count - k);
    for (int c = 0; c < C; ++c) wp[c] = std::copy(w[c] + k, w[c] + count, ws[c]) - (count - k);
    step(xp, wp, 0);
  }
  HWY_UNROLL(8)
  for (int i = 0; i < R * C; ++i) sums[i] = s[i];
}

// Compute a range of output columns, decoding each weight row once per block of rows.
inline constexpr std::int64_t chunk = 1024;    // weights decoded at a time: 4 KiB of stack per row
inline constexpr std::int64_t row_block = 24;  // rows of x that share a decoded weight row

template <int C>
HWY_INLINE void columns(const float* x, std::int64_t rows, const MatrixView& w, std::int64_t n,
                        const float* bias, float* y) {
  HWY_ALIGN float decoded[C][chunk];
  Sum16 sums[row_block * C];
  for (std::int64_t i = 0; i < rows * C; ++i) sums[i] = zero16();
  for (std::int64_t k = 0; k < w.cols; k += chunk) {
    const std::int64_t count = std::min(chunk, w.cols - k);
    const float* wp[C];
    for (int c = 0; c < C; ++c) {
      const std::byte* at = w.row(n + c) + row_bytes(w.dtype, k);
      if (w.dtype == DType::f32) {
        wp[c] = reinterpret_cast<const float*>(at);
      } else {
        widen(w.dtype, at, decoded[c], count);
        wp[c] = decoded[c];
      }
    }
    std::int64_t r = 0;
    for (; r + 3 <= rows; r += 3) {
      const float* xp[3] = {x + r * w.cols + k, x + (r + 1) * w.cols + k, x + (r + 2) * w.cols + k};
      accumulate<3, C>(xp, wp, count, sums + r * C);
    }
    for (; r < rows; ++r) {
      const float* xp[1] = {x + r * w.cols + k};
      accumulate<1, C>(xp, wp, count, sums + r * C);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (int c = 0; c < C; ++c) {
      const float dot = total(sums[r * C + c]);
      y[r * w.rows + n + c] = bias == nullptr ? dot : dot + bias[n + c];
    }
  }
}

void linear_range(const float* x, std::int64_t m, const MatrixView& w, const float* bias, float* y,
                  std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = 0; r < m; r += row_block) {
    const std::int64_t rows = std::min(row_block, m - r);
    std::int64_t n = begin;
    if (rows == 1) {  // decode: more chains in flight
      for (; n + 4 <= end; n += 4) columns<4>(x + r * w.cols, rows, w, n, bias, y + r * w.rows);
    }
    for (; n + 2 <= end; n += 2) columns<2>(x + r * w.cols, rows, w, n, bias, y + r * w.rows);
    for (; n < end; ++n) columns<1>(x + r * w.cols, rows, w, n, bias, y + r * w.rows);
  }
}

// Take the lanes one after the other.
inline constexpr std::int64_t tile_rows = 6, tile_columns = 2 * width;
inline constexpr std::int64_t deepest =
    512;  // terms, so that a tile stays in the first-level cache
inline constexpr std::int64_t least_rows = 24;  // for fewer, arranging the weights does not pay

/// packed[(lane * steps + i) * tile_columns + j] = w[n + j, 16 i + lane], with steps = K / 16.
void arrange_lanes(const MatrixView& w, std::int64_t n, float* packed) {
  const std::int64_t steps = w.cols / numerics::lanes;
  float decoded[deepest];
  for (std::int64_t j = 0; j < tile_columns; ++j) {
    const auto* row = reinterpret_cast<const float*>(w.row(n + j));
    if (w.dtype != DType::f32) {
      widen(w.dtype, w.row(n + j), decoded, w.cols);
      row = decoded;
    }
    for (std::int64_t i = 0; i < steps; ++i, row += numerics::lanes) {
      for (std::int64_t lane = 0; lane < numerics::lanes; ++lane)
        packed[(lane * steps + i) * tile_columns + j] = row[lane];
    }
  }
}

/// y[r, 0 … tile_columns) of six rows, from the weights of as many columns.
HWY_INLINE void lanes_in_turn(const float* x, const float* packed, std::int64_t k,
                              const float* bias, float* y, std::int64_t stride) {
  constexpr int registers = static_cast<int>(2 * tile_rows);
  constexpr int reversed[] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
  HWY_ALIGN float waiting[5][static_cast<std::size_t>(registers * width)];
  const std::int64_t steps = k / numerics::lanes;
  int depth = 0;
  for (int done = 0; done < numerics::lanes; ++done) {
    Vec s[registers];
    HWY_UNROLL(12)
    for (int i = 0; i < registers; ++i) s[i] = set(0.0f);
    const float* a = x + reversed[done];
    const float* b = packed + reversed[done] * steps * tile_columns;
    for (std::int64_t i = 0; i < steps; ++i, a += numerics::lanes, b += tile_columns) {
      const Vec left = load(b), right = load(b + width);
      HWY_UNROLL(6)
      for (int r = 0; r < tile_rows; ++r) {
        const Vec v = set(a[r * k]);
        s[2 * r] = fma(v, left, s[2 * r]);
        s[2 * r + 1] = fma(v, right, s[2 * r + 1]);
      }
    }
    for (int carry = done; carry % 2 == 1; carry /= 2) {
      --depth;
      HWY_UNROLL(12)
      for (int i = 0; i < registers; ++i) s[i] = hn::Add(load(waiting[depth] + i * width), s[i]);
    }
    HWY_UNROLL(12)
    for (int i = 0; i < registers; ++i) store(s[i], waiting[depth] + i * width);
    ++depth;
  }
  for (int i = 0; i < registers; ++i) {
    const Vec sum = load(waiting[0] + i * width);
    const Vec out = bias == nullptr ? sum : hn::Add(sum, load(bias + i % 2 * width));
    store(out, y + i / 2 * stride + i % 2 * width);
  }
}

void linear_any(const float* x, std::int64_t m, const MatrixView& w, const float* bias, float* y,
                std::int64_t begin, std::int64_t end) {
  const std::int64_t k = w.cols;
  const bool fits = m >= least_rows && k > 0 && k <= deepest && k % numerics::lanes == 0;
  const std::int64_t rows = fits ? m / tile_rows * tile_rows : 0;
  HWY_ALIGN float packed[static_cast<std::size_t>(tile_columns * deepest)];
  std::int64_t n = begin;
  for (; rows > 0 && n + tile_columns <= end; n += tile_columns) {
    arrange_lanes(w, n, packed);
    for (std::int64_t r = 0; r < rows; r += tile_rows) {
      lanes_in_turn(x + r * k, packed, k, bias == nullptr ? nullptr : bias + n, y + r * w.rows + n,
                    w.rows);
    }
  }
  if (n > begin) linear_range(x + rows * k, m - rows, w, bias, y + rows * w.rows, begin, n);
  linear_range(x, m, w, bias, y, n, end);
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>

#include "rose/core/error.h"
#include "rose/kernels/panel_linear.h"

namespace rose::kernels {

// Refuse shapes that do not fit.
namespace {

void check(std::span<const float> x, std::int64_t m, const Projection& p) {
  const auto fits = [](std::size_t size, std::int64_t rows, std::int64_t cols) {
    return rows >= 0 && cols >= 0 &&
           size == static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
  };
  if (!fits(x.size(), m, p.w.cols) || !fits(p.y.size(), m, p.w.rows)) {
    throw core::Error(
        core::Code::invalid_argument,
        fmt::format("x holds {} and y {} values for {} rows through a [{}, {}] matrix", x.size(),
                    p.y.size(), m, p.w.rows, p.w.cols))
        .in("linear");
  }
}

}  // namespace

// Split what lies in rows over the threads, and leave panels to their own kernel.
HWY_EXPORT(linear_any);

void linear(std::span<const float> x, std::int64_t m, std::span<const Projection> projections,
            core::ThreadPool& pool) {
  std::int64_t columns = 0, work = 1;
  bool panels = false;
  for (const Projection& p : projections) {
    check(x, m, p);
    if (p.w.panels != nullptr) {
      panels = true;
      continue;
    }
    columns += p.w.rows;
    work = std::max(work, m * p.w.cols);
  }
  if (panels) panel_linear(x, m, projections, pool);
  const std::int64_t grain =
      std::max<std::int64_t>(4, 65'536 / work);  // a few microseconds at least
  pool.for_range(columns, grain, [&](std::int64_t begin, std::int64_t end) {
    for (const Projection& p : projections) {
      if (p.w.panels != nullptr) continue;
      const std::int64_t from = std::max<std::int64_t>(begin, 0), to = std::min(end, p.w.rows);
      if (from < to)
        HWY_DYNAMIC_DISPATCH(linear_any)(x.data(), m, p.w, p.bias, p.y.data(), from, to);
      begin -= p.w.rows;
      end -= p.w.rows;
    }
  });
}

// Offer the short forms.
void linear(std::span<const float> x, std::int64_t m, const MatrixView& w, const float* bias,
            std::span<float> y, core::ThreadPool& pool) {
  const Projection only{.w = w, .bias = bias, .y = y};
  linear(x, m, std::span(&only, 1), pool);
}

void add(std::span<float> x, std::span<const float> y, core::ThreadPool& pool) {
  if (x.size() != y.size())
    throw core::Error(core::Code::invalid_argument, "operands differ in size").in("add");
  pool.for_range(static_cast<std::int64_t>(x.size()), 16'384,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     x[static_cast<std::size_t>(i)] += y[static_cast<std::size_t>(i)];
                 });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
