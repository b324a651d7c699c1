// The gradients of attention against double precision, and twice the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "labs/gpu/gpu_test.h"
#include "rose/kernels/gpu/attention_backward.h"
#include "sequences.h"

namespace rose::kernels::gpu {
namespace {

using GpuAttentionBackward = GpuTest;

struct Gradients {
  Bits dq, dk, dv;
};

/// Packed sequences through the forward kernel and back. dout is random.
struct Backward {
  Heads h;
  std::vector<std::int32_t> offsets{0};
  Bits q, k, v, dout;
  Outcome forward;
  Gradients gradients;

  Backward(const Heads& heads, const std::vector<std::int64_t>& lengths, std::uint64_t seed,
           float spread)
      : h(heads) {
    std::vector<Tokens> sequences;
    std::vector<Part> parts;
    for (const std::int64_t n : lengths) sequences.emplace_back(h, n, seed++, spread);
    for (const Tokens& t : sequences) {
      parts.push_back({&t, 0, t.length});
      append(q, t.q, 0, t.length, h.heads * h.head_dim);
      append(k, t.k, 0, t.length, h.kv_heads * h.head_dim);
      append(v, t.v, 0, t.length, h.kv_heads * h.head_dim);
      offsets.push_back(offsets.back() + static_cast<std::int32_t>(t.length));
    }
    dout = Tokens(h, offsets.back(), seed).q;
    forward = attend_packed(h, parts);
    gradients = run(0);
  }

  Gradients run(std::int64_t gap, bool warpgroup = true, bool pairs = false) const {
    const std::int64_t tokens = offsets.back(), width = h.heads * h.head_dim,
                       key_width = h.kv_heads * h.head_dim;
    const auto spread = [&](const Bits& bits, std::int64_t cols) {
      Bits rows;
      for (std::int64_t t = 0; t < tokens; ++t) {
        append(rows, bits, t, 1, cols);
        rows.insert(rows.end(), static_cast<std::size_t>(gap), nan_of(h.dtype));
      }
      return to_device(rows, h.dtype);
    };
    const Buffer on[5] = {spread(q, width), spread(k, key_width), spread(v, key_width),
                          spread(forward.out, width), spread(dout, width)};
    const Buffer lse = Buffer::of(std::span<const float>(forward.lse));
    Buffer to[3] = {Buffer(bytes_of(h.dtype, tokens * width)),
                    Buffer(bytes_of(h.dtype, tokens * key_width)),
                    Buffer(bytes_of(h.dtype, tokens * key_width))};
    for (Buffer& b : to) b.poison();
    AttentionBackwardPlan plan = plan_attention_backward(h.shape(), offsets);
    plan.warpgroup = warpgroup;
    plan.pairs = pairs;
    Buffer workspace(plan.workspace_bytes());
    workspace.poison();
    upload(plan, workspace.workspace(), {});
    const auto in = [&](const Buffer& b, std::int64_t cols) {
      return Matrix{b.data(), h.dtype, tokens, cols, cols + gap};
    };
    attention_backward(plan,
                       {in(on[0], width), in(on[1], key_width), in(on[2], key_width),
                        in(on[3], width), lse.as<float>()},
                       in(on[4], width), {to[0].data(), h.dtype, tokens, width},
                       {to[1].data(), h.dtype, tokens, key_width},
                       {to[2].data(), h.dtype, tokens, key_width}, workspace.workspace(), {});
    synchronize({});
    return {from_device(to[0], h.dtype), from_device(to[1], h.dtype), from_device(to[2], h.dtype)};
  }
};

/// The largest error over its bound, for dq, dk and dv. Weights and gradients of scores are rounded to their type (r), so each
/// term of a sum is off by r of its size; a gradient of a score also by what the output's rounding leaves in delta,
/// r |dout| |out|, and by the errors of exponents. All of it is bounded by 8 r + 2 e + 4 n u times sums of magnitudes.
std::array<double, 3> distances(const Backward& b) {
  const Heads& h = b.h;
  const double u = std::ldexp(1.0, -24), r = roundoff_of(h.dtype);
  // Half of the smallest number: what rounding loses of weights far below 1.
  const double tiny = tiny_of(h.dtype);
  const double scale = static_cast<double>(h.shape().scale);
  const std::int64_t d = h.head_dim, group = h.heads / h.kv_heads;
  const auto at = [&](const Bits& bits, std::int64_t t, std::int64_t heads, std::int64_t head,
                      std::int64_t c) {
    return static_cast<double>(
        value_of(bits[static_cast<std::size_t>((t * heads + head) * d + c)], h.dtype));
  };
  std::array<double, 3> worst{};
  for (std::size_t s = 0; s + 1 < b.offsets.size(); ++s) {
    const std::int64_t first = b.offsets[s], n = b.offsets[s + 1] - first;
    const auto size = static_cast<std::size_t>(n * d);
    for (std::int64_t kv = 0; kv < h.kv_heads; ++kv) {
      std::vector<double> dk(size), dv(size), dk_size(size), dv_size(size), dk_tiny(size, tiny),
          dv_tiny(size, tiny);
      double exponent = 0;
      for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        for (std::int64_t i = 0; i < n; ++i) {
          std::vector<double> p(static_cast<std::size_t>(i + 1)), dp(p.size()), dp_size(p.size());
          double max = -INFINITY, sum = 0, delta = 0, delta_size = 0, spread = 0, largest = 0;
          for (std::int64_t j = 0; j <= i; ++j) {
            double x = 0, a = 0, y = 0, z = 0;
            for (std::int64_t c = 0; c < d; ++c) {
              const double product =
                  at(b.q, first + i, h.heads, head, c) * at(b.k, first + j, h.kv_heads, kv, c);
              const double g =
                  at(b.dout, first + i, h.heads, head, c) * at(b.v, first + j, h.kv_heads, kv, c);
              x += product;
              a += std::fabs(product);
              y += g;
              z += std::fabs(g);
            }
            const auto jj = static_cast<std::size_t>(j);
            p[jj] = x * scale;
            dp[jj] = y;
            dp_size[jj] = z;
            max = std::max(max, x * scale);
            spread = std::max(spread, a * scale);
            largest = std::max(largest, std::fabs(x * scale));
          }
          for (double& x : p) sum += x = std::exp(x - max);
          for (std::size_t j = 0; j < p.size(); ++j) {
            p[j] /= sum;
            delta += p[j] * dp[j];
            delta_size += p[j] * dp_size[j];
          }
          exponent = std::max(exponent, 2 * static_cast<double>(d + 2) * 2 * u * spread +
                                            24 * u * largest + 16 * u);
          const double factor = 8 * r + 2 * exponent + 4 * static_cast<double>(n + d) * u;
          for (std::int64_t c = 0; c < d; ++c) {
            double dq = 0, dq_size = 0, dq_tiny = tiny;
            for (std::int64_t j = 0; j <= i; ++j) {
              const auto jj = static_cast<std::size_t>(j);
              const double ds = p[jj] * (dp[jj] - delta) * scale,
                           ds_size = p[jj] * (dp_size[jj] + delta_size) * scale;
              const double key = at(b.k, first + j, h.kv_heads, kv, c);
              dq += ds * key;
              dq_size += ds_size * std::fabs(key);
              dq_tiny += tiny * std::fabs(key) * scale;
              const auto to = static_cast<std::size_t>(j * d + c);
              const double query = at(b.q, first + i, h.heads, head, c),
                           g = at(b.dout, first + i, h.heads, head, c);
              dk[to] += ds * query;
              dk_size[to] += ds_size * std::fabs(query);
              dk_tiny[to] += tiny * std::fabs(query) * scale;
              dv[to] += p[jj] * g;
              dv_size[to] += p[jj] * std::fabs(g);
              dv_tiny[to] += tiny * std::fabs(g);
            }
            const double error = std::fabs(at(b.gradients.dq, first + i, h.heads, head, c) - dq);
            const double ratio = error / (factor * dq_size + r * std::fabs(dq) + dq_tiny);
            worst[0] = std::max(worst[0], std::isfinite(error) ? ratio : INFINITY);
          }
        }
      }
      const double factor = 8 * r + 2 * exponent + 4 * static_cast<double>(n * group + d) * u;
      for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t c = 0; c < d; ++c) {
          const auto to = static_cast<std::size_t>(j * d + c);
          const double errors[2] = {
              std::fabs(at(b.gradients.dk, first + j, h.kv_heads, kv, c) - dk[to]),
              std::fabs(at(b.gradients.dv, first + j, h.kv_heads, kv, c) - dv[to])};
          const double bounds[2] = {factor * dk_size[to] + r * std::fabs(dk[to]) + dk_tiny[to],
                                    factor * dv_size[to] + r * std::fabs(dv[to]) + dv_tiny[to]};
          for (std::size_t i = 0; i < 2; ++i) {
            worst[1 + i] =
                std::max(worst[1 + i], std::isfinite(errors[i]) ? errors[i] / bounds[i] : INFINITY);
          }
        }
      }
    }
  }
  return worst;
}

const std::vector<Heads> kHeads = {{2, 2, 64},
                                   {4, 2, 64},
                                   {3, 1, 64},
                                   {2, 2, 128},
                                   {7, 1, 128},
                                   {2, 1, 128, DType::f16},
                                   {2, 1, 96},
                                   {2, 2, 64, DType::f16},
                                   {2, 1, 256},
                                   {1, 1, 256, DType::f16},
                                   {4, 2, 64, DType::f32},
                                   {3, 1, 96, DType::f32},
                                   {2, 2, 128, DType::f32},
                                   {2, 1, 256, DType::f32}};

TEST_F(GpuAttentionBackward, IsNearDoublePrecisionAndRepeatsItsBits) {
  for (const Heads& h : kHeads) {
    std::array<double, 3> worst{};
    std::uint64_t seed = 1;
    for (const std::vector<std::int64_t>& lengths : {std::vector<std::int64_t>{1},
                                                     {63},
                                                     {64},
                                                     {65},
                                                     {129},
                                                     {0, 1, 2, 3, 0, 70, 31, 128, 0},
                                                     {200, 17}}) {
      for (const float spread : {1.0f, 2.0f}) {
        const Backward b(h, lengths, seed++, spread);
        const std::array<double, 3> d = distances(b);
        for (std::size_t i = 0; i < 3; ++i) {
          const char* const names[3] = {"dq", "dk", "dv"};
          EXPECT_LE(d[i], 1.0) << names[i] << " of heads " << h.heads << "/" << h.kv_heads << " of "
                               << h.head_dim << ", first length " << lengths[0] << " of "
                               << lengths.size();
          worst[i] = std::max(worst[i], d[i]);
        }
        const Gradients again = b.run(8);
        EXPECT_TRUE(again.dq == b.gradients.dq && again.dk == b.gradients.dk &&
                    again.dv == b.gradients.dv)
            << "with gaps between rows";
        const Gradients paired = b.run(0, true, true);
        EXPECT_TRUE(paired.dq == b.gradients.dq && paired.dk == b.gradients.dk &&
                    paired.dv == b.gradients.dv)
            << "by two warpgroups, heads of " << h.head_dim << ", first length " << lengths[0];
        const Gradients portable = b.run(0, false);
        EXPECT_TRUE(portable.dq == b.gradients.dq && portable.dk == b.gradients.dk &&
                    portable.dv == b.gradients.dv)
            << "by mma.sync and by wgmma, heads of " << h.head_dim << ", first length "
            << lengths[0] << " of " << lengths.size();
      }
    }
    std::printf(
        "backward heads %d/%d of %d: largest error over its bound: dq %.3f, dk %.3f, dv %.3f\n",
        static_cast<int>(h.heads), static_cast<int>(h.kv_heads), static_cast<int>(h.head_dim),
        worst[0], worst[1], worst[2]);
  }
}

TEST_F(GpuAttentionBackward, NeighboursDoNotShow) {
  const Heads h{6, 2, 64};
  const Backward all(h, {77, 200, 1, 130}, 5, 1.5f);
  const Backward alone(h, {77}, 5, 1.5f);
  // The gradient of the output is drawn for the batch: give the lone row its own part of it.
  Backward same = alone;
  same.dout.assign(all.dout.begin(), all.dout.begin() + 77 * 6 * 64);
  const Gradients got = same.run(0);
  EXPECT_TRUE(std::equal(got.dq.begin(), got.dq.end(), all.gradients.dq.begin()));
  EXPECT_TRUE(std::equal(got.dk.begin(), got.dk.end(), all.gradients.dk.begin()));
  EXPECT_TRUE(std::equal(got.dv.begin(), got.dv.end(), all.gradients.dv.begin()));
}

}  // namespace
}  // namespace rose::kernels::gpu
