// Sequences with random queries, keys and values, and every way of asking attention for them.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "rose/core/rng.h"
#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/buffer.h"

namespace rose::kernels::gpu {

/// Numbers as the bits of their type, each in a word.
using Bits = std::vector<std::uint32_t>;

inline float value_of(std::uint32_t bits, DType dtype) {
  const auto low = static_cast<std::uint16_t>(bits);
  return dtype == DType::f32    ? std::bit_cast<float>(bits)
         : dtype == DType::bf16 ? to_float(bf16{low})
                                : to_float(f16{low});
}
inline std::uint32_t bits_of(float value, DType dtype) {
  return dtype == DType::f32    ? std::bit_cast<std::uint32_t>(value)
         : dtype == DType::bf16 ? to_bf16(value).bits
                                : to_f16(value).bits;
}
inline std::uint32_t nan_of(DType dtype) {
  return dtype == DType::f32 ? 0xffffffff : 0xffff;
}
inline std::size_t bytes_of(DType dtype, std::int64_t count) {
  return static_cast<std::size_t>(count) * (dtype == DType::f32 ? 4 : 2);
}
/// Half of the last place of a number near 1.
inline double roundoff_of(DType dtype) {
  return std::ldexp(1.0, dtype == DType::f32 ? -24 : dtype == DType::bf16 ? -8 : -11);
}
/// What rounding loses of numbers far below 1; exponentials below the smallest normal number are 0.
inline double tiny_of(DType dtype) {
  return std::ldexp(1.0, dtype == DType::f32 ? -125 : dtype == DType::bf16 ? -133 : -25);
}

inline Buffer to_device(const Bits& bits, DType dtype) {
  if (dtype == DType::f32) return Buffer::of(std::span<const std::uint32_t>(bits));
  const std::vector<std::uint16_t> narrow(bits.begin(), bits.end());
  return Buffer::of(std::span<const std::uint16_t>(narrow));
}
inline Bits from_device(const Buffer& buffer, DType dtype) {
  if (dtype == DType::f32) return buffer.values<std::uint32_t>();
  const auto narrow = buffer.values<std::uint16_t>();
  return {narrow.begin(), narrow.end()};
}

struct Heads {
  std::int64_t heads = 4, kv_heads = 2, head_dim = 64;
  DType dtype = DType::bf16;
  AttentionShape shape() const {
    return {heads, kv_heads, head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim))};
  }
};

/// One sequence: q [length, heads * D], k and v [length, kv_heads * D].
struct Tokens {
  std::int64_t length = 0;
  Bits q, k, v;

  Tokens(const Heads& h, std::int64_t n, std::uint64_t seed, float spread = 1.0f) : length(n) {
    core::Rng rng(seed);
    const auto fill = [&](std::int64_t width, float scale) {
      Bits bits(static_cast<std::size_t>(n * width));
      for (auto& b : bits) b = bits_of(rng.normal() * scale, h.dtype);
      return bits;
    };
    q = fill(h.heads * h.head_dim, spread);
    k = fill(h.kv_heads * h.head_dim, spread);
    v = fill(h.kv_heads * h.head_dim, 1.0f);
  }
};

/// Queries first .. first + count - 1 of a sequence, whose keys are 0 .. first + count - 1.
struct Part {
  const Tokens* tokens;
  std::int64_t first, count;
};

/// Outputs of parts, one after another: out [count, heads * D], lse [count, heads].
struct Outcome {
  Bits out;
  std::vector<float> lse;
};

inline void append(Bits& to, const Bits& from, std::int64_t first, std::int64_t count,
                   std::int64_t width) {
  to.insert(to.end(), from.begin() + first * width, from.begin() + (first + count) * width);
}

inline Outcome collect(const Heads& h, std::int64_t tokens, const Buffer& out, const Buffer& lse) {
  Outcome result{from_device(out, h.dtype), lse.values<float>()};
  result.out.resize(static_cast<std::size_t>(tokens * h.heads * h.head_dim));
  result.lse.resize(static_cast<std::size_t>(tokens * h.heads));
  return result;
}

/// Packed rows. `gap` elements lie between rows of q, k, v and out.
inline Outcome attend_packed(const Heads& h, const std::vector<Part>& parts,
                             const AttentionOptions& options = {}, std::int64_t gap = 0) {
  Bits rows[3];
  std::vector<std::int32_t> offsets{0};
  const std::int64_t width[3] = {h.heads * h.head_dim, h.kv_heads * h.head_dim,
                                 h.kv_heads * h.head_dim};
  for (const Part& p : parts) {
    const Bits* from[3] = {&p.tokens->q, &p.tokens->k, &p.tokens->v};
    for (int i = 0; i < 3; ++i) {
      for (std::int64_t t = p.first; t < p.first + p.count; ++t) {
        append(rows[i], *from[i], t, 1, width[i]);
        rows[i].insert(rows[i].end(), static_cast<std::size_t>(gap), nan_of(h.dtype));
      }
    }
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(p.count));
  }
  const std::int64_t tokens = offsets.back();
  const Buffer q = to_device(rows[0], h.dtype);
  const Buffer k = to_device(rows[1], h.dtype);
  const Buffer v = to_device(rows[2], h.dtype);
  Buffer out(bytes_of(h.dtype, tokens * width[0]) + 16);
  Buffer lse(static_cast<std::size_t>(tokens * h.heads) * 4 + 16);
  const AttentionPlan plan = plan_attention(h.shape(), offsets, {}, options);
  Buffer workspace(plan.workspace_bytes());
  out.poison();
  lse.poison();
  workspace.poison();
  upload(plan, workspace.workspace(), {});
  attention(plan, {q.data(), h.dtype, tokens, width[0], width[0] + gap},
            {k.data(), h.dtype, tokens, width[1], width[1] + gap},
            {v.data(), h.dtype, tokens, width[2], width[2] + gap},
            {out.data(), h.dtype, tokens, width[0]}, lse.as<float>(), workspace.workspace(), {});
  synchronize({});
  return collect(h, tokens, out, lse);
}

/// Through a cache whose pages are shuffled and whose unused slots are NaN, layer 1 of 2.
inline Outcome attend_paged(const Heads& h, const std::vector<Part>& parts, int page_size,
                            const AttentionOptions& options = {}, std::uint64_t seed = 1) {
  std::int64_t longest = 1;
  for (const Part& p : parts) longest = std::max(longest, p.first + p.count);
  const std::int64_t stride = (longest + page_size - 1) / page_size;
  const auto sequences = static_cast<std::int64_t>(parts.size());
  const std::int64_t pages = sequences * stride + 3;
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages)), table, lengths, offsets{0};
  std::iota(order.begin(), order.end(), 0);
  core::Rng rng(seed);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[rng.below(static_cast<std::uint32_t>(i))]);
  }
  const std::int64_t layer = pages * h.kv_heads * page_size * h.head_dim;
  Bits keys(static_cast<std::size_t>(2 * layer), nan_of(h.dtype)), values = keys, queries;
  KvView view{.dtype = h.dtype,
              .layers = 2,
              .kv_heads = static_cast<int>(h.kv_heads),
              .head_dim = static_cast<int>(h.head_dim),
              .page_size = page_size,
              .pages = pages,
              .table_stride = stride};
  table.assign(order.begin(), order.begin() + sequences * stride);
  view.page_table = table.data();
  for (std::int64_t s = 0; s < sequences; ++s) {
    const Part& p = parts[static_cast<std::size_t>(s)];
    for (std::int64_t j = 0; j < p.first + p.count; ++j) {
      for (int head = 0; head < view.kv_heads; ++head) {
        const std::int64_t from = (j * h.kv_heads + head) * h.head_dim,
                           to = view.offset(1, s, head, j);
        std::copy_n(p.tokens->k.begin() + from, h.head_dim, keys.begin() + to);
        std::copy_n(p.tokens->v.begin() + from, h.head_dim, values.begin() + to);
      }
    }
    append(queries, p.tokens->q, p.first, p.count, h.heads * h.head_dim);
    lengths.push_back(static_cast<std::int32_t>(p.first + p.count));
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(p.count));
  }
  const std::int64_t tokens = offsets.back(), width = h.heads * h.head_dim;
  const Buffer q = to_device(queries, h.dtype);
  const Buffer k = to_device(keys, h.dtype);
  const Buffer v = to_device(values, h.dtype);
  const Buffer t = Buffer::of(std::span<const std::int32_t>(table));
  view.k = k.data();
  view.v = v.data();
  view.page_table = t.as<std::int32_t>();
  Buffer out(bytes_of(h.dtype, tokens * width) + 16);
  Buffer lse(static_cast<std::size_t>(tokens * h.heads) * 4 + 16);
  const AttentionPlan plan = plan_attention(h.shape(), offsets, lengths, options);
  Buffer workspace(plan.workspace_bytes());
  out.poison();
  lse.poison();
  workspace.poison();
  upload(plan, workspace.workspace(), {});
  attention(plan, {q.data(), h.dtype, tokens, width}, view, 1, {out.data(), h.dtype, tokens, width},
            lse.as<float>(), workspace.workspace(), {});
  synchronize({});
  return collect(h, tokens, out, lse);
}

/// The largest error over its bound, and where; above 1 is wrong.
struct Distance {
  double worst = 0;
  std::int64_t token = 0, head = 0, column = 0;  ///< column -1: the log-sum-exp
};

/// One part against float64. With u the unit roundoff of fp32 and r that of the type, a score is off by at most
/// (D + 2) 2u sum |q k|, an exponent by that and 4u of its size, an exponential by 4u relative, a weight by r (or by half of the smallest number of its type); sums of n terms by
/// 2n u (tensor cores truncate). So the output is off by (r + 2 e + (2n + 40) u) sum p |v| and the last rounding.
inline Distance distance(const Heads& h, const Part& part, const Outcome& outcome,
                         std::int64_t stride = 1) {
  const double u = std::ldexp(1.0, -24), r = roundoff_of(h.dtype);
  const double tiny = tiny_of(h.dtype);
  const double scale = h.shape().scale;
  const std::int64_t d = h.head_dim;
  Distance result;
  for (std::int64_t i = 0; i < part.count; i += stride) {
    const std::int64_t n = part.first + i + 1;
    for (std::int64_t head = 0; head < h.heads; ++head) {
      const std::int64_t kv = head / (h.heads / h.kv_heads);
      std::vector<double> p(static_cast<std::size_t>(n));
      double max = -INFINITY, spread = 0, size = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        double s = 0, a = 0;
        for (std::int64_t c = 0; c < d; ++c) {
          const double x =
              static_cast<double>(value_of(
                  part.tokens
                      ->q[static_cast<std::size_t>(((part.first + i) * h.heads + head) * d + c)],
                  h.dtype)) *
              static_cast<double>(
                  value_of(part.tokens->k[static_cast<std::size_t>((j * h.kv_heads + kv) * d + c)],
                           h.dtype));
          s += x;
          a += std::fabs(x);
        }
        p[static_cast<std::size_t>(j)] = s * scale;
        max = std::max(max, s * scale);
        spread = std::max(spread, a * scale);
        size = std::max(size, std::fabs(s * scale));
      }
      double sum = 0;
      for (double& x : p) sum += x = std::exp(x - max);
      const double exponent = static_cast<double>(d + 2) * 2 * u * spread + 12 * u * size + 8 * u;
      const auto at = static_cast<std::size_t>(i * h.heads + head);
      const auto note = [&](double error, double bound, std::int64_t column) {
        const double ratio = std::isfinite(error) ? error / bound : INFINITY;
        if (ratio > result.worst) result = {ratio, i, head, column};
      };
      note(std::fabs(static_cast<double>(outcome.lse[at]) - (max + std::log(sum))),
           exponent + (2 * static_cast<double>(n) + 8) * u + 4 * u * std::fabs(max + std::log(sum)),
           -1);
      for (std::int64_t c = 0; c < d; ++c) {
        double o = 0, a = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          const double x =
              p[static_cast<std::size_t>(j)] *
              static_cast<double>(
                  value_of(part.tokens->v[static_cast<std::size_t>((j * h.kv_heads + kv) * d + c)],
                           h.dtype));
          o += x;
          a += std::fabs(x);
        }
        o /= sum;
        a /= sum;
        const double got = static_cast<double>(value_of(
            outcome.out[at * static_cast<std::size_t>(d) + static_cast<std::size_t>(c)], h.dtype));
        note(std::fabs(got - o),
             (r + 2 * exponent + (2 * static_cast<double>(n) + 40) * u) * a + r * std::fabs(o) +
                 tiny,
             c);
      }
    }
  }
  return result;
}

}  // namespace rose::kernels::gpu
