// Attention, backward.

#include "rose/kernels/attention_backward.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/attention_backward.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "rose/kernels/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

constexpr std::int64_t kTile = 64;  // queries and keys at a time

// Lay out a thread's scratch memory.
struct TileScratch {
  float *p, *ds;                    // [kTile, kTile]
  float *keys_t, *values_t, *keys;  // packed: K^T, V^T [D, keys], K [keys, D]
  float *queries, *douts;           // packed: Q, dO [queries, D]
  float *dk, *dv;                   // [kTile, D] sums of this key tile
  float* delta;                     // [kTile]
};

std::int64_t attention_scratch(std::int64_t d) {
  return 2 * kTile * kTile + 2 * packed_size(d, kTile) + 3 * packed_size(kTile, d) + 2 * kTile * d +
         kTile;
}

TileScratch lay_out(float* at, std::int64_t d) {
  const auto take = [&](std::int64_t n) {
    float* const here = at;
    at += n;
    return here;
  };
  TileScratch s{};
  s.p = take(kTile * kTile), s.ds = take(kTile * kTile);
  s.keys_t = take(packed_size(d, kTile)), s.values_t = take(packed_size(d, kTile));
  s.keys = take(packed_size(kTile, d));
  s.queries = take(packed_size(kTile, d)), s.douts = take(packed_size(kTile, d));
  s.dk = take(kTile * d), s.dv = take(kTile * d);
  s.delta = take(kTile);
  return s;
}

// Multiply small tiles with the same kernel.
void pack(const Strided& b, std::int64_t depth, std::int64_t columns, float* packed) {
  pack_panels(b, depth, columns, 0, (columns + kPanel - 1) / kPanel, packed);
}

void multiply(const Strided& a, const float* packed, std::int64_t rows, std::int64_t depth,
              std::int64_t columns, float* c, std::int64_t stride, bool add) {
  multiply_rows(a, packed, rows, depth, columns, c, stride, add, 0,
                (rows + kTileRows - 1) / kTileRows);
}

// s holds unscaled q.k and becomes p; ds holds dO.v and becomes the adjoint of q.k. Both [rows, kTile],
// of which `keys` columns are used. Query i of the tile sees the first i + diagonal columns.
void score_adjoints(float* s, float* ds, const float* lse, std::int64_t lse_stride,
                    const float* delta, float scale, std::int64_t rows, std::int64_t keys,
                    std::int64_t diagonal) {
  const Vec factor = set(scale), zero = set(0.0f);
  for (std::int64_t i = 0; i < rows; ++i) {
    const Vec top = set(lse[i * lse_stride]), row_delta = set(delta[i]);
    float* p_row = s + i * kTile;
    float* d_row = ds + i * kTile;
    for (std::int64_t j = 0; j < keys; j += width) {  // a tile's width is a multiple of a vector's
      const Vec p = exp(hn::Min(zero, hn::Sub(hn::Mul(load(p_row + j), factor), top)));
      store(p, p_row + j);
      store(hn::Mul(hn::Mul(factor, p), hn::Sub(load(d_row + j), row_delta)), d_row + j);
    }
    for (std::int64_t j = std::max<std::int64_t>(0, i + diagonal); j < keys; ++j)
      p_row[j] = d_row[j] = 0.0f;
  }
}

// One sequence of n tokens and one key head: pointers are to its first token, strides in floats.
void attention_head_backward(const float* q, const float* k, const float* v, const float* out,
                             const float* lse, const float* dout, std::int64_t n,
                             std::int64_t heads, std::int64_t kv_heads, std::int64_t group,
                             std::int64_t d, float scale, float* dq, float* dk, float* dv,
                             float* memory) {
  const TileScratch s = lay_out(memory, d);
  const std::int64_t q_row = heads * d, k_row = kv_heads * d;
  for (std::int64_t j = 0; j < n; j += kTile) {
    const std::int64_t keys = std::min(kTile, n - j);
    pack({k + j * k_row, 1, k_row}, d, keys, s.keys_t);
    pack({v + j * k_row, 1, k_row}, d, keys, s.values_t);
    pack({k + j * k_row, k_row, 1}, keys, d, s.keys);
    for (std::int64_t h = 0; h < group; ++h) {
      for (std::int64_t i = j; i < n; i += kTile) {
        // Take one tile of queries back to one tile of keys.
        const std::int64_t rows = std::min(kTile, n - i), at = i * q_row + h * d;
        const Strided queries{q + at, q_row, 1}, douts{dout + at, q_row, 1};
        for (std::int64_t r = 0; r < rows; ++r) {
          float sum = 0.0f;
          for (std::int64_t e = 0; e < d; ++e)
            sum += dout[at + r * q_row + e] * out[at + r * q_row + e];
          s.delta[r] = sum;
        }
        multiply(queries, s.keys_t, rows, d, keys, s.p, kTile, false);
        multiply(douts, s.values_t, rows, d, keys, s.ds, kTile, false);
        score_adjoints(s.p, s.ds, lse + i * heads + h, heads, s.delta, scale, rows, keys,
                       i - j + 1);
        pack(queries, rows, d, s.queries);
        pack(douts, rows, d, s.douts);
        const bool later = h > 0 || i > j;  // the tile's sums have been begun
        multiply({s.p, 1, kTile}, s.douts, keys, rows, d, s.dv, d, later);
        multiply({s.ds, 1, kTile}, s.queries, keys, rows, d, s.dk, d, later);
        multiply({s.ds, kTile, 1}, s.keys, rows, keys, d, dq + at, q_row, j > 0);
      }
    }
    for (std::int64_t r = 0; r < keys; ++r) {
      std::copy(s.dk + r * d, s.dk + (r + 1) * d, dk + (j + r) * k_row);
      std::copy(s.dv + r * d, s.dv + (r + 1) * d, dv + (j + r) * k_row);
    }
  }
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::kernels {
namespace {

HWY_EXPORT(attention_head_backward);
HWY_EXPORT(attention_scratch);

}  // namespace

// Divide the pairs of row and key head among the threads.
void attention_backward(std::span<const float> q, std::span<const float> k,
                        std::span<const float> v, std::span<const float> out,
                        std::span<const float> lse, std::span<const float> dout,
                        std::span<const std::int32_t> row_offsets, const AttentionShape& shape,
                        std::span<float> dq, std::span<float> dk, std::span<float> dv,
                        core::ThreadPool& pool, std::vector<float>& scratch) {
  const auto [heads, kv_heads, d, scale] = shape;
  const std::int64_t tokens = row_offsets.empty() ? 0 : row_offsets.back();
  const auto expect = [](std::size_t have, std::int64_t want, const char* what) {
    if (have == static_cast<std::size_t>(want)) return;
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} has {} elements, expected {}", what, have, want))
        .in("attention_backward");
  };
  expect(q.size(), tokens * heads * d, "q");
  expect(out.size(), tokens * heads * d, "out");
  expect(dout.size(), tokens * heads * d, "dout");
  expect(dq.size(), tokens * heads * d, "dq");
  expect(k.size(), tokens * kv_heads * d, "k");
  expect(v.size(), tokens * kv_heads * d, "v");
  expect(dk.size(), tokens * kv_heads * d, "dk");
  expect(dv.size(), tokens * kv_heads * d, "dv");
  expect(lse.size(), tokens * heads, "lse");
  const std::int64_t rows =
      std::max<std::int64_t>(0, static_cast<std::int64_t>(row_offsets.size()) - 1);
  const std::int64_t each = (HWY_DYNAMIC_DISPATCH(attention_scratch)(d) + 15) / 16 * 16;
  const auto size = static_cast<std::size_t>(each * pool.size());
  if (scratch.size() < size) scratch.resize(size);
  const std::int64_t group = heads / kv_heads;
  pool.for_range(rows * kv_heads, 1,
                 [&, heads = heads, kv_heads = kv_heads, d = d, scale = scale](
                     std::int64_t begin, std::int64_t end, int range) {
                   for (std::int64_t task = begin; task < end; ++task) {
                     const std::int64_t row = task / kv_heads, g = task % kv_heads;
                     const std::int64_t first = row_offsets[static_cast<std::size_t>(row)];
                     const std::int64_t n = row_offsets[static_cast<std::size_t>(row) + 1] - first;
                     const std::int64_t at = (first * heads + g * group) * d,
                                        key_at = (first * kv_heads + g) * d;
                     HWY_DYNAMIC_DISPATCH(attention_head_backward)
                     (q.data() + at, k.data() + key_at, v.data() + key_at, out.data() + at,
                      lse.data() + first * heads + g * group, dout.data() + at, n, heads, kv_heads,
                      group, d, scale, dq.data() + at, dk.data() + key_at, dv.data() + key_at,
                      scratch.data() + each * range);
                   }
                 });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
