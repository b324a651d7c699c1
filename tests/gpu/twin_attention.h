// Attention, its gradients and the cache's kernels, on drawn shapes, against double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/attention_backward.h"
#include "rose/kernels/gpu/kv_cache.h"
#include "twins.h"

namespace rose::kernels::gpu {

struct AttentionDraw {
  std::int64_t group, kv_heads, head_dim, heads;
  DType dtype;
  std::vector<std::int32_t> offsets{0};

  AttentionDraw(Fuzz& fuzz, std::initializer_list<std::int64_t> dims)
      : group(1 + fuzz.below(8)),
        kv_heads(1 + fuzz.below(3)),
        head_dim(fuzz.one_of(dims)),
        heads(group * kv_heads),
        dtype(fuzz.one_of({DType::bf16, DType::f16, DType::f32})) {
    fuzz.misalign(false);
    fuzz.note(std::to_string(heads) + "/" + std::to_string(kv_heads) + " heads of " +
              std::to_string(head_dim) + ", tokens");
    for (std::uint32_t s = 1 + fuzz.below(3); s > 0; --s) {
      offsets.push_back(offsets.back() + static_cast<std::int32_t>(fuzz.size(100)));
    }
  }
  std::int64_t tokens() const { return offsets.back(); }
  AttentionShape shape() const {
    return {heads, kv_heads, head_dim, 1.0f / std::sqrt(static_cast<float>(head_dim))};
  }
  double roundoff() const {
    return std::ldexp(1.0, dtype == DType::f32 ? -24 : dtype == DType::bf16 ? -8 : -11);
  }
  double tiny() const {
    return std::ldexp(1.0, dtype == DType::f32 ? -125 : dtype == DType::bf16 ? -134 : -25);
  }
};

/// The weights of one query, and what bounds their relative error.
struct AttentionRow {
  std::vector<double> p;
  double lse = 0, exponent = 0;

  AttentionRow(const AttentionDraw& a, const Input& q, const Input& k, std::int64_t first,
               std::int64_t query, std::int64_t head) {
    const double u = std::ldexp(1.0, -24), scale = static_cast<double>(a.shape().scale);
    const std::int64_t kv = head / a.group;
    double max = -INFINITY, spread = 0, sum = 0;
    for (std::int64_t j = first; j <= query; ++j) {
      double s = 0, size = 0;
      for (std::int64_t d = 0; d < a.head_dim; ++d) {
        const double x = q.at(query, head * a.head_dim + d) * k.at(j, kv * a.head_dim + d);
        s += x;
        size += std::fabs(x);
      }
      p.push_back(s * scale);
      max = std::max(max, p.back());
      spread = std::max(spread, size * scale);
    }
    for (double& x : p) sum += x = std::exp(x - max);
    for (double& x : p) x /= sum;
    lse = max + std::log(sum);
    exponent = static_cast<double>(a.head_dim + 2) * 2 * u * spread + 24 * u * spread + 16 * u;
  }
};

inline void twin_attention(Fuzz& fuzz) {
  const AttentionDraw a(fuzz, {64, 96, 128, 256});
  const std::int64_t width = a.heads * a.head_dim, key_width = a.kv_heads * a.head_dim;
  const Input q = fuzz.input(a.tokens(), width, a.dtype),
              k = fuzz.input(a.tokens(), key_width, a.dtype),
              v = fuzz.input(a.tokens(), key_width, a.dtype);
  Output out = fuzz.output(a.tokens(), width, a.dtype);
  Output lse{DeviceMatrix(a.tokens(), a.heads, DType::f32), DType::f32};
  const double r = a.roundoff(), u = std::ldexp(1.0, -24);
  std::vector<double> want(static_cast<std::size_t>(a.tokens() * width)), bounds(want.size());
  std::vector<double> want_lse(static_cast<std::size_t>(a.tokens() * a.heads)),
      lse_bounds(want_lse.size());
  for (std::size_t s = 0; s + 1 < a.offsets.size(); ++s) {
    for (std::int64_t t = a.offsets[s]; t < a.offsets[s + 1]; ++t) {
      for (std::int64_t h = 0; h < a.heads; ++h) {
        const AttentionRow row(a, q, k, a.offsets[s], t, h);
        const auto n = static_cast<double>(row.p.size());
        const auto at = static_cast<std::size_t>(t * a.heads + h);
        want_lse[at] = row.lse;
        lse_bounds[at] = row.exponent + (2 * n + 8) * u + 4 * u * std::fabs(row.lse);
        for (std::int64_t d = 0; d < a.head_dim; ++d) {
          double o = 0, size = 0, values = 0;
          for (std::size_t j = 0; j < row.p.size(); ++j) {
            const double x =
                v.at(a.offsets[s] + static_cast<std::int64_t>(j), h / a.group * a.head_dim + d);
            o += row.p[j] * x;
            size += row.p[j] * std::fabs(x);
            values += std::fabs(x);
          }
          const std::size_t to =
              at * static_cast<std::size_t>(a.head_dim) + static_cast<std::size_t>(d);
          want[to] = o;
          bounds[to] = (r + 2 * row.exponent + (2 * n + 40) * u) * size + r * std::fabs(o) +
                       a.tiny() * (1 + values);
        }
      }
    }
  }
  const AttentionPlan plan = plan_attention(
      a.shape(), a.offsets, {},
      {.path = fuzz.one_of({AttentionPath::automatic, AttentionPath::rows, AttentionPath::splits}),
       .warpgroup = fuzz.coin()});
  Buffer workspace(plan.workspace_bytes());
  workspace.poison();
  upload(plan, workspace.workspace(), {});
  attention(plan, q.view(), k.view(), v.view(), out.view(), static_cast<float*>(lse.view().data),
            workspace.workspace(), {});
  fuzz.expect(out, want, bounds, "out");
  fuzz.expect(lse, want_lse, lse_bounds, "lse");
}

inline void twin_attention_backward(Fuzz& fuzz) {
  const AttentionDraw a(fuzz, {64, 96, 128, 256});
  const std::int64_t width = a.heads * a.head_dim, key_width = a.kv_heads * a.head_dim;
  const Input q = fuzz.input(a.tokens(), width, a.dtype),
              k = fuzz.input(a.tokens(), key_width, a.dtype),
              v = fuzz.input(a.tokens(), key_width, a.dtype),
              dout = fuzz.input(a.tokens(), width, a.dtype);
  Output out = fuzz.output(a.tokens(), width, a.dtype),
         dq = fuzz.output(a.tokens(), width, a.dtype),
         dk = fuzz.output(a.tokens(), key_width, a.dtype),
         dv = fuzz.output(a.tokens(), key_width, a.dtype);
  Buffer lse(static_cast<std::size_t>(a.tokens() * a.heads) * sizeof(float) + 16);
  const AttentionPlan forward = plan_attention(a.shape(), a.offsets);
  AttentionBackwardPlan plan = plan_attention_backward(a.shape(), a.offsets);
  plan.warpgroup = fuzz.coin();
  plan.pairs = fuzz.coin();
  Buffer forward_memory(forward.workspace_bytes()), memory(plan.workspace_bytes());
  forward_memory.poison();
  memory.poison();
  upload(forward, forward_memory.workspace(), {});
  upload(plan, memory.workspace(), {});
  attention(forward, q.view(), k.view(), v.view(), out.view(), lse.as<float>(),
            forward_memory.workspace(), {});
  attention_backward(plan, {q.view(), k.view(), v.view(), out.view(), lse.as<float>()}, dout.view(),
                     dq.view(), dk.view(), dv.view(), memory.workspace(), {});

  // Each term of a sum is off by what rounds weights and slopes (r), by the exponents, and, through delta, by the output's rounding.
  const double r = a.roundoff(), u = std::ldexp(1.0, -24),
               scale = static_cast<double>(a.shape().scale);
  const auto size = static_cast<std::size_t>(a.tokens() * width),
             key_size = static_cast<std::size_t>(a.tokens() * key_width);
  std::vector<double> want_q(size), bound_q(size), want_k(key_size), bound_k(key_size),
      want_v(key_size), bound_v(key_size);
  for (std::size_t s = 0; s + 1 < a.offsets.size(); ++s) {
    const std::int64_t first = a.offsets[s];
    for (std::int64_t t = first; t < a.offsets[s + 1]; ++t) {
      for (std::int64_t h = 0; h < a.heads; ++h) {
        const AttentionRow row(a, q, k, first, t, h);
        const std::int64_t kv = h / a.group;
        std::vector<double> dp(row.p.size()), dp_size(row.p.size());
        double delta = 0, delta_size = 0;
        for (std::size_t j = 0; j < row.p.size(); ++j) {
          for (std::int64_t d = 0; d < a.head_dim; ++d) {
            const double x = dout.at(t, h * a.head_dim + d) *
                             v.at(first + static_cast<std::int64_t>(j), kv * a.head_dim + d);
            dp[j] += x;
            dp_size[j] += std::fabs(x);
          }
          delta += row.p[j] * dp[j];
          delta_size += row.p[j] * dp_size[j];
        }
        const double factor = 8 * r + 2 * row.exponent +
                              4 * static_cast<double>(a.tokens() * a.group + a.head_dim) * u;
        for (std::size_t j = 0; j < row.p.size(); ++j) {
          const std::int64_t key = first + static_cast<std::int64_t>(j);
          const double ds = row.p[j] * (dp[j] - delta) * scale,
                       ds_size = row.p[j] * (dp_size[j] + delta_size) * scale;
          for (std::int64_t d = 0; d < a.head_dim; ++d) {
            const auto qd = static_cast<std::size_t>(t * width + h * a.head_dim + d),
                       kd = static_cast<std::size_t>(key * key_width + kv * a.head_dim + d);
            const double query = q.at(t, h * a.head_dim + d),
                         value = k.at(key, kv * a.head_dim + d), g = dout.at(t, h * a.head_dim + d);
            want_q[qd] += ds * value;
            bound_q[qd] +=
                factor * ds_size * std::fabs(value) + a.tiny() * std::fabs(value) * scale;
            want_k[kd] += ds * query;
            bound_k[kd] +=
                factor * ds_size * std::fabs(query) + a.tiny() * std::fabs(query) * scale;
            want_v[kd] += row.p[j] * g;
            bound_v[kd] += factor * row.p[j] * std::fabs(g) + a.tiny() * std::fabs(g);
          }
        }
      }
    }
  }
  const auto finish = [&](const std::vector<double>& want, std::vector<double>& bound) {
    for (std::size_t i = 0; i < want.size(); ++i) bound[i] += r * std::fabs(want[i]) + a.tiny();
  };
  finish(want_q, bound_q);
  finish(want_k, bound_k);
  finish(want_v, bound_v);
  fuzz.expect(dq, want_q, bound_q, "dq");
  fuzz.expect(dk, want_k, bound_k, "dk");
  fuzz.expect(dv, want_v, bound_v, "dv");
}

/// Append, then gather: keys turned, values as they were, padding zero.
inline void twin_kv_cache(Fuzz& fuzz) {
  const AttentionDraw a(fuzz, {32, 64, 96, 128});
  const std::int64_t key_width = a.kv_heads * a.head_dim, half = a.head_dim / 2;
  const int page = static_cast<int>(fuzz.one_of({1, 3, 16, 64}));
  const Input k = fuzz.input(a.tokens(), key_width, a.dtype),
              v = fuzz.input(a.tokens(), key_width, a.dtype);
  Output to_k = fuzz.output(a.tokens(), key_width, a.dtype),
         to_v = fuzz.output(a.tokens(), key_width, a.dtype);
  std::vector<float> cosines(static_cast<std::size_t>(a.tokens() * half)), sines(cosines.size());
  for (std::size_t i = 0; i < cosines.size(); ++i) {
    cosines[i] = std::cos(6.0f * fuzz.uniform());
    sines[i] = std::sin(6.0f * fuzz.uniform());
  }
  const auto sequences = static_cast<std::int64_t>(a.offsets.size()) - 1;
  const std::int64_t stride = 160 / page + 1, pages = sequences * stride;
  std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
  std::iota(table.begin(), table.end(), 0);
  for (std::size_t i = table.size(); i > 1; --i) {
    std::swap(table[i - 1], table[fuzz.below(static_cast<std::uint32_t>(i))]);
  }
  std::vector<KvPlace> places;
  for (std::int32_t s = 0; s < sequences; ++s) {
    const auto at = static_cast<std::size_t>(s);
    for (std::int32_t t = a.offsets[at]; t < a.offsets[at + 1]; ++t) {
      places.push_back({s, fuzz.below(9) == 0 ? -1 : t - a.offsets[at]});
    }
  }
  const auto bytes = static_cast<std::size_t>(pages * page * key_width) * row_bytes(a.dtype, 1);
  Buffer keys(bytes), values(bytes);
  keys.poison();
  values.poison();
  const Integers device_table(table);
  const Buffer device_places = Buffer::of(std::span<const KvPlace>(places)),
               cos = Buffer::of(std::span<const float>(cosines)),
               sin = Buffer::of(std::span<const float>(sines));
  const KvView view{.k = keys.data(),
                    .v = values.data(),
                    .dtype = a.dtype,
                    .layers = 1,
                    .kv_heads = static_cast<int>(a.kv_heads),
                    .head_dim = static_cast<int>(a.head_dim),
                    .page_size = page,
                    .pages = pages,
                    .page_table = device_table.data(),
                    .table_stride = stride};
  kv_append({}, k.view(), v.view(), view, 0, device_places.as<KvPlace>(),
            {cos.as<float>(), sin.as<float>()}, {});
  kv_gather(view, 0, device_places.as<KvPlace>(), to_k.view(), to_v.view(), {});

  const double r = a.roundoff(), u = std::ldexp(1.0, -24);
  std::vector<double> want_k(static_cast<std::size_t>(a.tokens() * key_width)),
      bound_k(want_k.size()), want_v(want_k.size()), bound_v(want_k.size());
  for (std::int64_t t = 0; t < a.tokens(); ++t) {
    if (places[static_cast<std::size_t>(t)].position < 0) continue;
    for (std::int64_t i = 0; i < key_width; ++i) {
      const std::int64_t d = i % a.head_dim, low = i - d + d % half, high = low + half;
      const auto angle = static_cast<std::size_t>(t * half + d % half);
      const double c = static_cast<double>(cosines[angle]), s = static_cast<double>(sines[angle]);
      const double one = (d < half ? k.at(t, low) : k.at(t, high)) * c,
                   two = (d < half ? -k.at(t, high) : k.at(t, low)) * s;
      const auto to = static_cast<std::size_t>(t * key_width + i);
      want_k[to] = one + two;
      bound_k[to] =
          (r + u) * std::fabs(one + two) + 2 * u * (std::fabs(one) + std::fabs(two)) + a.tiny();
      want_v[to] = v.at(t, i);
    }
  }
  fuzz.expect(to_k, want_k, bound_k, "k");
  fuzz.expect(to_v, want_v, bound_v, "v");
}

}  // namespace rose::kernels::gpu
