// Let every token read the tokens before it.

#include "rose/kernels/attention.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/attention.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "rose/kernels/lanes-inl.h"

#ifndef ROSE_KERNELS_ATTENTION_ONCE
#define ROSE_KERNELS_ATTENTION_ONCE
namespace rose::kernels {

// Find the keys of one sequence and head, wherever they live.
inline constexpr std::int64_t max_head_dim = 256;
inline constexpr std::int64_t max_query_rows = 16;

/// What the bytes of a cache are multiplied with.
inline float scale_of(const KvView& kv, bool values, int layer, int head) {
  const float* const scales = values ? kv.v_scale : kv.k_scale;
  return scales == nullptr ? 1.0f : scales[static_cast<std::int64_t>(layer) * kv.kv_heads + head];
}

/// Keys and values of one sequence for one key-value head: packed rows, or pages of a cache.
struct KeySource {
  const float *k = nullptr, *v = nullptr;  // packed: key j at k + j * stride
  std::int64_t stride = 0;
  const KvView* view = nullptr;  // or paged
  int layer = 0, head = 0;
  std::int64_t sequence = 0;
  std::int64_t head_dim = 0;

  /// Point rows[j] at key (or value) first + j, decoding narrow types into scratch [count, head_dim].
  void gather(bool values, std::int64_t first, std::int64_t count, float* scratch,
              const float** rows) const {
    for (std::int64_t j = 0; j < count; ++j) {
      if (view == nullptr) {
        rows[j] = (values ? v : k) + (first + j) * stride;
        continue;
      }
      const std::int64_t at = view->offset(layer, sequence, head, first + j);
      const void* base = values ? view->v : view->k;
      if (view->dtype == DType::f32) {
        rows[j] = static_cast<const float*>(base) + at;
        continue;
      }
      float* row = scratch + j * head_dim;
      decode(base, at, values, row);
      rows[j] = row;
    }
  }
  void decode(const void* base, std::int64_t at, bool values, float* row) const {
    const float scale = view->dtype == DType::u8 ? scale_of(*view, values, layer, head) : 1.0f;
    for (std::int64_t d = 0; d < head_dim; ++d) {
      switch (view->dtype) {
        case DType::bf16: row[d] = to_float(static_cast<const bf16*>(base)[at + d]); break;
        case DType::f16: row[d] = to_float(static_cast<const f16*>(base)[at + d]); break;
        default:
          row[d] = to_float(
              to_bf16(to_float(f8_e4m3{static_cast<const std::uint8_t*>(base)[at + d]}) * scale));
      }
    }
  }
  DType dtype() const { return view == nullptr ? DType::f32 : view->dtype; }
};

/// One query: its vector, how many keys it may see, where its result goes.
struct QueryRow {
  const float* q;
  std::int64_t limit;
  float* out;
  float* lse;
};

}  // namespace rose::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// Score one query against a tile of keys.

/// scores[j] = scale * (q . keys[j]), each dot product in sixteen lanes.
HWY_INLINE void score_tile(const float* q, const float* const* keys, std::int64_t count,
                           std::int64_t head_dim, float scale, float* scores) {
  std::int64_t j = 0;
  for (; j + 4 <= count; j += 4) {
    Sum16 s[4] = {zero16(), zero16(), zero16(), zero16()};
    for (std::int64_t d = 0; d < head_dim; d += numerics::lanes) {
      HWY_UNROLL(4)
      for (int p = 0; p < parts; ++p) {
        const std::int64_t at = d + p * width;
        if (at >= head_dim) break;
        const Vec query = load_some(q + at, head_dim - at);
        HWY_UNROLL(4)
        for (int i = 0; i < 4; ++i) {
          s[i].part[p] = fma(query, load_some(keys[j + i] + at, head_dim - at), s[i].part[p]);
        }
      }
    }
    for (int i = 0; i < 4; ++i) scores[j + i] = total(s[i]) * scale;
  }
  for (; j < count; ++j) {
    Sum16 s = zero16();
    for (std::int64_t d = 0; d < head_dim; d += width) {
      const int p = static_cast<int>(d / width) % parts;
      s.part[p] =
          fma(load_some(q + d, head_dim - d), load_some(keys[j] + d, head_dim - d), s.part[p]);
    }
    scores[j] = total(s) * scale;
  }
}

// Weigh the tile and rescale what came before.

/// The running state of one query within one split.
struct Running {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
};

/// Turns scores into exp(score - new maximum), updates the state, returns what earlier sums must be scaled with.
HWY_INLINE float soften(float* scores, std::int64_t count, Running& state) {
  float highest = state.max;
  for (std::int64_t j = 0; j < count; ++j) highest = scores[j] > highest ? scores[j] : highest;
  Sum16 s = zero16();
  for (std::int64_t j = 0; j < count; j += width) {
    const int p = static_cast<int>(j / width) % parts;
    const Vec shifted = hn::Sub(load_some(scores + j, count - j), set(highest));
    Vec weight = exp(shifted);
    store_some(weight, scores + j, count - j);
    if (count - j < width) weight = load_some(scores + j, count - j);  // nothing beyond the end
    s.part[p] = hn::Add(s.part[p], weight);
  }
  const float rescale = kernels::exp(state.max - highest);
  state.sum = std::fma(state.sum, rescale, total(s));
  state.max = highest;
  return rescale;
}

// Add the weighted values of the tile, key by key.

/// out = out * rescale, then out += weights[j] * values[j] for ascending j. Each element is its own chain.
template <int N>
HWY_INLINE void add_values_at(const float* weights, const float* const* values, std::int64_t count,
                              float rescale, float* out, std::int64_t d) {
  Vec o[N];
  HWY_UNROLL(8)
  for (int i = 0; i < N; ++i) o[i] = hn::Mul(load(out + d + i * width), set(rescale));
  for (std::int64_t j = 0; j < count; ++j) {
    const Vec weight = set(weights[j]);
    const float* value = values[j] + d;
    HWY_UNROLL(8)
    for (int i = 0; i < N; ++i) o[i] = fma(weight, load(value + i * width), o[i]);
  }
  HWY_UNROLL(8)
  for (int i = 0; i < N; ++i) store(o[i], out + d + i * width);
}

HWY_INLINE void add_values(const float* weights, const float* const* values, std::int64_t count,
                           float rescale, std::int64_t head_dim, float* out) {
  std::int64_t d = 0;
  for (; d + 8 * width <= head_dim; d += 8 * width)
    add_values_at<8>(weights, values, count, rescale, out, d);
  for (; d + width <= head_dim; d += width)
    add_values_at<1>(weights, values, count, rescale, out, d);
  for (; d < head_dim; ++d) {
    float o = out[d] * rescale;
    for (std::int64_t j = 0; j < count; ++j) o = std::fma(weights[j], values[j][d], o);
    out[d] = o;
  }
}

// Walk the keys tile by tile, close a split every 512, merge left to right.

/// Queries that share a key-value head: at most max_query_rows of them.
void attend_rows(const QueryRow* rows, std::int64_t row_count, const KeySource& source,
                 std::int64_t head_dim, float scale) {
  const std::int64_t tile = numerics::key_tile_of(head_dim);
  const float *keys[numerics::key_tile], *values[numerics::key_tile];
  HWY_ALIGN float scratch[2][numerics::key_tile * max_head_dim / 2];  // 128 x 128 or 64 x 256
  HWY_ALIGN float scores[numerics::key_tile];
  HWY_ALIGN float open[max_query_rows][max_head_dim], closed[max_query_rows][max_head_dim];
  Running running[max_query_rows], merged[max_query_rows];
  for (std::int64_t r = 0; r < row_count; ++r) {
    std::fill_n(open[r], head_dim, 0.0f);
    std::fill_n(closed[r], head_dim, 0.0f);
  }

  const auto close_split = [&](std::int64_t r) {
    if (running[r].sum == 0.0f && running[r].max == Running{}.max)
      return;  // this query ended before the split
    const float common = std::max(merged[r].max, running[r].max);
    const float left = kernels::exp(merged[r].max - common),
                right = kernels::exp(running[r].max - common);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      closed[r][d] = closed[r][d] * left + open[r][d] * right;
      open[r][d] = 0.0f;
    }
    merged[r] = {common, merged[r].sum * left + running[r].sum * right};
    running[r] = Running{};
  };

  std::int64_t longest = 0;
  for (std::int64_t r = 0; r < row_count; ++r) longest = std::max(longest, rows[r].limit);
  for (std::int64_t first = 0; first < longest; first += tile) {
    if (first > 0 && first % numerics::key_split == 0) {
      for (std::int64_t r = 0; r < row_count; ++r) close_split(r);
    }
    const std::int64_t count = std::min(tile, longest - first);
    source.gather(false, first, count, scratch[0], keys);
    source.gather(true, first, count, scratch[1], values);
    for (std::int64_t r = 0; r < row_count; ++r) {
      const std::int64_t visible = std::min(count, rows[r].limit - first);
      if (visible <= 0) continue;
      score_tile(rows[r].q, keys, visible, head_dim, scale, scores);
      const float rescale = soften(scores, visible, running[r]);
      // Round the weights to the type of the values.
      if (source.dtype() == DType::bf16 || source.dtype() == DType::u8) {
        for (std::int64_t j = 0; j < visible; ++j) scores[j] = to_float(to_bf16(scores[j]));
      } else if (source.dtype() == DType::f16) {
        for (std::int64_t j = 0; j < visible; ++j) scores[j] = to_float(to_f16(scores[j]));
      }
      add_values(scores, values, visible, rescale, head_dim, open[r]);
    }
  }
  for (std::int64_t r = 0; r < row_count; ++r) {
    close_split(r);
    for (std::int64_t d = 0; d < head_dim; ++d) rows[r].out[d] = closed[r][d] / merged[r].sum;
    if (rows[r].lse != nullptr) {
      *rows[r].lse =
          merged[r].max + static_cast<float>(std::log(static_cast<double>(merged[r].sum)));
    }
  }
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>

#include "rose/core/error.h"

namespace rose::kernels {

HWY_EXPORT(attend_rows);

// Hand out blocks of queries, long and short ones in turn.
namespace {

/// Calls attend_rows for every (row of the batch, block of its tokens, key-value head).
/// limit(t, i) is how many keys token t, the i-th of its row, may see.
template <class Limit, class Source>
void attend(std::span<const float> q, std::span<const std::int32_t> row_offsets,
            const AttentionShape& shape, std::span<float> out, std::span<float> lse,
            core::ThreadPool& pool, const Limit& limit, const Source& source) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t per_call = std::min(group, max_query_rows);
  const std::int64_t block = std::max<std::int64_t>(1, max_query_rows / group);  // tokens per block
  const auto length = [&](std::size_t s) -> std::int64_t {
    return row_offsets[s + 1] - row_offsets[s];
  };
  std::int64_t blocks = 0;
  for (std::size_t s = 0; s + 1 < row_offsets.size(); ++s)
    blocks += (length(s) + block - 1) / block;
  const std::int64_t units = blocks * shape.kv_heads;
  pool.for_range(units, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t u = begin; u < end; ++u) {
      const std::int64_t unit =
          u % 2 == 0 ? u / 2 : units - 1 - u / 2;  // later tokens see more keys
      std::int64_t b = unit / shape.kv_heads;
      const std::int64_t kv_head = unit % shape.kv_heads;
      std::size_t s = 0;
      for (; b >= (length(s) + block - 1) / block; ++s) b -= (length(s) + block - 1) / block;
      const std::int64_t first = b * block, last = std::min(first + block, length(s));
      const KeySource keys = source(s, kv_head);
      for (std::int64_t h = kv_head * group; h < (kv_head + 1) * group; h += per_call) {
        QueryRow rows[max_query_rows];
        std::int64_t count = 0;
        for (std::int64_t i = first; i < last; ++i) {
          const std::int64_t t = row_offsets[s] + i;
          for (std::int64_t g = h; g < std::min(h + per_call, (kv_head + 1) * group); ++g) {
            const std::int64_t at = t * shape.heads + g;
            rows[count++] = {q.data() + at * shape.head_dim, limit(t, i),
                             out.data() + at * shape.head_dim,
                             lse.empty() ? nullptr : lse.data() + at};
          }
        }
        HWY_DYNAMIC_DISPATCH(attend_rows)(rows, count, keys, shape.head_dim, shape.scale);
      }
    }
  });
}

// Refuse shapes that do not fit.
void check(const AttentionShape& shape, std::size_t q, std::size_t out, std::size_t lse,
           std::span<const std::int32_t> row_offsets) {
  const auto fail = [](std::string message) {
    throw core::Error(core::Code::invalid_argument, std::move(message)).in("attention");
  };
  if (shape.heads <= 0 || shape.kv_heads <= 0 || shape.heads % shape.kv_heads != 0) {
    fail(fmt::format("{} query heads do not divide over {} key-value heads", shape.heads,
                     shape.kv_heads));
  }
  if (shape.head_dim <= 0 || shape.head_dim > max_head_dim) {
    fail(fmt::format("head dimension {} is outside [1, {}]", shape.head_dim, max_head_dim));
  }
  if (row_offsets.empty() || row_offsets.front() != 0 ||
      !std::is_sorted(row_offsets.begin(), row_offsets.end())) {
    fail("row offsets must ascend from 0");
  }
  const auto tokens = static_cast<std::size_t>(row_offsets.back());
  const auto heads = static_cast<std::size_t>(shape.heads);
  if (q != tokens * heads * static_cast<std::size_t>(shape.head_dim) || out != q ||
      (lse != 0 && lse != tokens * heads)) {
    fail(fmt::format("q holds {} and out {} values for {} tokens", q, out, tokens));
  }
}
void check_pages(const KvView& kv, std::size_t sequence, std::int32_t longest) {
  for (std::int32_t i = 0; i <= longest / kv.page_size; ++i) {
    const std::int32_t page =
        kv.page_table[static_cast<std::int64_t>(sequence) * kv.table_stride + i];
    if (page >= 0 && page < kv.pages) continue;
    throw core::Error(core::Code::out_of_range,
                      fmt::format("entry {} of sequence {} is page {}, and the cache has {}", i,
                                  sequence, page, kv.pages))
        .in("page_table");
  }
}

void check(const KvView& kv, const AttentionShape& shape, std::span<const std::int32_t> positions,
           std::span<const std::int32_t> row_offsets) {
  if (kv.kv_heads != shape.kv_heads || kv.head_dim != shape.head_dim) {
    throw core::Error(core::Code::invalid_argument, "the cache was made for other heads")
        .in("attention");
  }
  if (positions.size() != static_cast<std::size_t>(row_offsets.back())) {
    throw core::Error(core::Code::invalid_argument, "one position per token is needed")
        .in("attention");
  }
  for (const std::int32_t p : positions) {
    if (p < 0 || p >= kv.capacity()) {
      throw core::Error(core::Code::out_of_range,
                        fmt::format("position {} is outside a cache of {}", p, kv.capacity()))
          .in("attention");
    }
  }
  for (std::size_t s = 0; s + 1 < row_offsets.size(); ++s) {
    std::int32_t longest = -1;
    for (std::int32_t t = row_offsets[s]; t < row_offsets[s + 1]; ++t)
      longest = std::max(longest, positions[static_cast<std::size_t>(t)]);
    if (longest >= 0) check_pages(kv, s, longest);
  }
}

}  // namespace

// Attend within packed rows, or through the cache.
void attention(std::span<const float> q, std::span<const float> k, std::span<const float> v,
               std::span<const std::int32_t> row_offsets, const AttentionShape& shape,
               std::span<float> out, std::span<float> lse, core::ThreadPool& pool) {
  check(shape, q.size(), out.size(), lse.size(), row_offsets);
  const std::int64_t stride = shape.kv_heads * shape.head_dim;
  if (k.size() != static_cast<std::size_t>(row_offsets.back() * stride) || v.size() != k.size()) {
    throw core::Error(core::Code::invalid_argument, "k and v do not hold one row per token")
        .in("attention");
  }
  attend(
      q, row_offsets, shape, out, lse, pool, [](std::int64_t, std::int64_t i) { return i + 1; },
      [&](std::size_t s, std::int64_t head) {
        const std::int64_t at = row_offsets[s] * stride + head * shape.head_dim;
        return KeySource{
            .k = k.data() + at, .v = v.data() + at, .stride = stride, .head_dim = shape.head_dim};
      });
}

void attention(std::span<const float> q, const KvView& kv, int layer,
               std::span<const std::int32_t> row_offsets, std::span<const std::int32_t> positions,
               const AttentionShape& shape, std::span<float> out, std::span<float> lse,
               core::ThreadPool& pool) {
  check(shape, q.size(), out.size(), lse.size(), row_offsets);
  check(kv, shape, positions, row_offsets);
  attend(
      q, row_offsets, shape, out, lse, pool,
      [&](std::int64_t t, std::int64_t) -> std::int64_t {
        return positions[static_cast<std::size_t>(t)] + 1;
      },
      [&](std::size_t s, std::int64_t head) {
        return KeySource{.view = &kv,
                         .layer = layer,
                         .head = static_cast<int>(head),
                         .sequence = static_cast<std::int64_t>(s),
                         .head_dim = shape.head_dim};
      });
}

// Append the batch's keys and values to the cache.
namespace {

void store_row(const float* from, void* to, DType dtype, std::int64_t at, std::int64_t count,
               float scale) {
  for (std::int64_t d = 0; d < count; ++d) {
    switch (dtype) {
      case DType::u8:
        static_cast<std::uint8_t*>(to)[at + d] = to_f8_e4m3(from[d] / scale).bits;
        break;
      case DType::f32: static_cast<float*>(to)[at + d] = from[d]; break;
      case DType::f16: static_cast<f16*>(to)[at + d] = to_f16(from[d]); break;
      default: static_cast<bf16*>(to)[at + d] = to_bf16(from[d]); break;
    }
  }
}

}  // namespace

void kv_append(std::span<const float> k, std::span<const float> v, const KvView& kv, int layer,
               std::span<const std::int32_t> row_offsets, std::span<const std::int32_t> positions,
               core::ThreadPool& pool) {
  const AttentionShape shape{
      .heads = kv.kv_heads, .kv_heads = kv.kv_heads, .head_dim = kv.head_dim};
  check(shape, k.size(), v.size(), 0, row_offsets);
  check(kv, shape, positions, row_offsets);
  pool.for_range(static_cast<std::int64_t>(row_offsets.size()) - 1, 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t s = begin; s < end; ++s) {
                     for (auto t = row_offsets[static_cast<std::size_t>(s)];
                          t < row_offsets[static_cast<std::size_t>(s) + 1]; ++t) {
                       for (int h = 0; h < kv.kv_heads; ++h) {
                         const std::int64_t from =
                             (static_cast<std::int64_t>(t) * kv.kv_heads + h) * kv.head_dim;
                         const std::int64_t to =
                             kv.offset(layer, s, h, positions[static_cast<std::size_t>(t)]);
                         store_row(k.data() + from, kv.k, kv.dtype, to, kv.head_dim,
                                   scale_of(kv, false, layer, h));
                         store_row(v.data() + from, kv.v, kv.dtype, to, kv.head_dim,
                                   scale_of(kv, true, layer, h));
                       }
                     }
                   }
                 });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
