// Tests of the chapter "Fused layers, forward and back".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/linear_backward.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/gpu/turn_heads.h"

namespace rose::kernels::gpu {
namespace {

// Slices depend on the shape alone.
TEST(BackwardProducts, AreCutWhereOutputsAreFew) {
  const auto slices = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return backward_slices({.product = BackwardProduct::weight, .m = m, .n = n, .k = k});
  };
  EXPECT_EQ(slices(65536, 768, 768), 8);
  EXPECT_EQ(slices(65536, 3072, 768), 2);
  EXPECT_EQ(slices(8192, 50304, 768), 1);
  EXPECT_EQ(slices(1023, 768, 768), 1);
  EXPECT_EQ(backward_slices({.m = 65536, .n = 768, .k = 768}), 1);
}

using GpuBackwardProducts = GpuTest;

TEST_F(GpuBackwardProducts, AreAsNearAsRoundingAllows) {
  constexpr std::int64_t m = 4096, n = 192, k = 136;
  for (const DType dtype : {DType::bf16, DType::f32, DType::f16}) {
    const auto values = [&](std::int64_t count, std::uint64_t seed) {
      std::vector<float> v = random_values(count, seed);
      for (float& x : v) x = rounded(x, dtype);
      return v;
    };
    const std::vector<float> dy = values(m * n, 1), x = values(m * k, 2), w = values(n * k, 3);
    const DeviceMatrix on_dy = DeviceMatrix::of(dy, m, n, dtype, {.gap = 8}),
                       on_x = DeviceMatrix::of(x, m, k, dtype),
                       on_w = DeviceMatrix::of(w, n, k, dtype);
    const DeviceMatrix dx(m, k, dtype);
    DeviceMatrix dw = DeviceMatrix::of(std::vector<float>(n * k, 1.0f), n, k, DType::f32);
    DeviceMatrix db = DeviceMatrix::of(std::vector<float>(n, 1.0f), 1, n, DType::f32);
    BackwardPlans plans(false);
    const BackwardShape shape{
        .product = BackwardProduct::weight, .m = m, .n = n, .k = k, .in = dtype};
    BackwardShape other = shape;
    other.product = BackwardProduct::input;
    EXPECT_GT(plans(shape).slices, 1);
    const Buffer room(std::max({plans(shape).workspace_bytes, plans(other).workspace_bytes,
                                bias_backward_workspace(m, n), std::size_t{256}}));
    linear_backward_weight(plans(shape), on_dy.view(), on_x.view(), dw.view(), room.workspace(),
                           {});
    linear_backward_input(plans(other), on_dy.view(), on_w.view(), dx.view(), room.workspace(), {});
    bias_backward(on_dy.view(), static_cast<float*>(db.view().data), room.workspace(), {});
    std::vector<double> dw_exact(n * k, 1.0), dw_size(n * k, 1.0), db_exact(n, 1.0),
        db_size(n, 1.0);
    std::vector<double> dx_exact(m * k), dx_size(m * k);
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        const double g = dy[static_cast<std::size_t>(r * n + c)];
        db_exact[static_cast<std::size_t>(c)] += g;
        db_size[static_cast<std::size_t>(c)] += std::abs(g);
        for (std::int64_t i = 0; i < k; ++i) {
          const auto at_w = static_cast<std::size_t>(c * k + i),
                     at_x = static_cast<std::size_t>(r * k + i);
          dw_exact[at_w] += g * x[at_x], dw_size[at_w] += std::abs(g * x[at_x]);
          dx_exact[at_x] += g * w[at_w], dx_size[at_x] += std::abs(g * w[at_w]);
        }
      }
    }
    const auto scaled = [](std::vector<double> sizes, double terms) {
      for (double& s : sizes) s *= 2 * gamma(terms);  // tensor cores may truncate: twice
      return sizes;
    };
    synchronize({});
    const double to_w = expect_close(dw.values(), dw_exact, scaled(dw_size, m), DType::f32, "dw"),
                 to_x = expect_close(dx.values(), dx_exact, scaled(dx_size, n), dtype, "dx"),
                 to_b = expect_close(db.values(), db_exact, scaled(db_size, m), DType::f32, "db");
    std::printf("%s: dw %.2e, dx %.2e, db %.2e\n", std::string(info(dtype).name).c_str(), to_w,
                to_x, to_b);
  }
}

// Fused operations have the bits of those they replace.
using GpuFused = GpuTest;

TEST_F(GpuFused, GeluAndBiasInOneVisit) {
  constexpr std::int64_t m = 700, n = 200;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const DeviceMatrix x = DeviceMatrix::of(random_values(m * n, 1), m, n, dtype, {.gap = 8}),
                       dy = DeviceMatrix::of(random_values(m * n, 2), m, n, dtype), a(m, n, dtype),
                       b(m, n, dtype);
    const Buffer room(bias_backward_workspace(m, n)), sums(2 * n * sizeof(float));
    fill_bytes(sums.data(), 0, sums.bytes(), {});
    gelu_backward(x.view(), dy.view(), a.view(), Gelu::tanh, {});
    bias_backward(a.view(), sums.as<float>(), room.workspace(), {});
    gelu_bias_backward(x.view(), dy.view(), b.view(), Gelu::tanh, sums.as<float>() + n,
                       room.workspace(), {});
    expect_same_bits(a.values(), b.values(), "gradients");
    const std::vector<float> both = sums.values<float>();
    expect_same_bits(std::span(both).first(n), std::span(both).last(n), "sums");
    b.expect_guards("dx");
  }
}

TEST_F(GpuFused, NormAndTurnInOneVisit) {
  constexpr std::int64_t tokens = 301, heads = 4, kv_heads = 2;
  for (const std::int64_t d : {64, 128, 256}) {
    for (const DType dtype : {DType::bf16, DType::f32}) {
      const std::int64_t cols = (heads + kv_heads) * d;
      const DeviceMatrix x =
          DeviceMatrix::of(random_values(tokens * cols, 1), tokens, cols, dtype, {.gap = 8});
      const DeviceMatrix q_norm = DeviceMatrix::of(random_values(d, 2), 1, d, DType::f32),
                         k_norm = DeviceMatrix::of(random_values(d, 3), 1, d, DType::f32);
      const std::vector<float> angles = random_values(tokens * d / 2, 4);
      std::vector<float> cosines, sines;
      for (const float angle : angles)
        cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
      const Buffer cos = Buffer::of(std::span<const float>(cosines)),
                   sin = Buffer::of(std::span<const float>(sines));
      const Buffer inv(tokens * (heads + kv_heads) * 4), other_inv(inv.bytes()), sums(4 * d * 4),
          room(std::max(turn_heads_backward_workspace(d),
                        norm_backward_workspace(tokens * heads, d)));
      fill_bytes(sums.data(), 0, sums.bytes(), {});
      const HeadTurn turn{heads,           kv_heads,       d, q_norm.view(), k_norm.view(), 1e-6f,
                          cos.as<float>(), sin.as<float>()};
      const DeviceMatrix a(tokens, cols, dtype), b(tokens, cols, dtype);
      const auto part = [&](const DeviceMatrix& of, bool keys) {
        Matrix m = of.view();
        m.stride = m.row_stride();
        m.cols = (keys ? kv_heads : heads) * d;
        if (keys)
          m.data = static_cast<std::byte*>(m.data) +
                   heads * static_cast<std::int64_t>(row_bytes(dtype, d));
        return m;
      };
      float *const q_inv = inv.as<float>(), *const k_inv = q_inv + tokens * heads;
      turn_heads(turn, x.view(), a.view(), q_inv, k_inv, {});
      rmsnorm_heads(part(x, false), q_norm.view(), 1e-6f, part(b, false), other_inv.as<float>(),
                    {});
      rmsnorm_heads(part(x, true), k_norm.view(), 1e-6f, part(b, true),
                    other_inv.as<float>() + tokens * heads, {});
      rope(b.view(), d, cos.as<float>(), sin.as<float>(), RopePairing::half, false, {});
      expect_same_bits(a.values(), b.values(), "turned");
      expect_same_bits(inv.values<float>(), other_inv.values<float>(), "inverses");
      const std::vector<float> slopes = random_values(tokens * cols, 5);
      const DeviceMatrix da = DeviceMatrix::of(slopes, tokens, cols, dtype),
                         db = DeviceMatrix::of(slopes, tokens, cols, dtype);
      float* const s = sums.as<float>();
      turn_heads_backward(turn, x.view(), q_inv, k_inv, da.view(), s, s + d, room.workspace(), {});
      rope(db.view(), d, cos.as<float>(), sin.as<float>(), RopePairing::half, true, {});
      rmsnorm_heads_backward(part(x, false), q_norm.view(), q_inv, part(db, false), part(db, false),
                             s + 2 * d, room.workspace(), {});
      rmsnorm_heads_backward(part(x, true), k_norm.view(), k_inv, part(db, true), part(db, true),
                             s + 3 * d, room.workspace(), {});
      const auto near = [&](std::span<const float> mine, std::span<const float> theirs,
                            const char* what) {
        double gap = 0, size = 0;
        for (std::size_t i = 0; i < mine.size(); ++i) {
          gap += (double{mine[i]} - theirs[i]) * (double{mine[i]} - theirs[i]);
          size += double{theirs[i]} * theirs[i];
        }
        EXPECT_LT(std::sqrt(gap / size), dtype == DType::f32 ? 1e-6 : 0x1p-8) << what << ' ' << d;
      };
      near(da.values(), db.values(), "dx");
      const std::vector<float> all = sums.values<float>();
      near(std::span(all).first(static_cast<std::size_t>(2 * d)),
           std::span(all).last(static_cast<std::size_t>(2 * d)), "weights");
    }
  }
}

}  // namespace
}  // namespace rose::kernels::gpu
