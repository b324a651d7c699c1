// The way back through a linear layer beside double precision, and the step of a whole model bit for bit as the CPU's.
#pragma once

#include <array>
#include <cmath>

#include "rose/core/parallel.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/flat_step.h"
#include "rose/kernels/gpu/linear_backward.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/gpu/turn_heads.h"
#include "twins.h"

namespace rose::kernels::gpu {

/// dx, dw += and db += of one draw; some have so many rows that the sum of dw is cut.
inline void twin_linear_backward(Fuzz& fuzz) {
  const std::int64_t n = fuzz.some(120, 8), k = fuzz.some(120, 8),
                     m = fuzz.below(4) == 0 ? 2048 : fuzz.some(300, 8);
  const DType dtype = fuzz.activation();
  fuzz.note(std::to_string(m));
  fuzz.misalign(false);
  const Input dy = fuzz.input(m, n, dtype), x = fuzz.input(m, k, dtype),
              w = fuzz.input(n, k, dtype), before = fuzz.input(1, n * k, DType::f32),
              bias = fuzz.input(1, n, DType::f32);
  const Output dx = fuzz.output(m, k, dtype);
  const DeviceMatrix dw = DeviceMatrix::of(before.values(), n, k, DType::f32),
                     db = DeviceMatrix::of(bias.values(), 1, n, DType::f32);
  BackwardShape shape{.m = m, .n = n, .k = k, .in = dtype}, other = shape;
  other.product = BackwardProduct::weight;
  BackwardPlans plans(false);
  Buffer room(std::max({plans(shape).workspace_bytes, plans(other).workspace_bytes,
                        bias_backward_workspace(m, n), std::size_t{256}}));
  room.poison();
  linear_backward_input(plans(shape), dy.view(), w.view(), dx.view(), room.workspace(), {});
  linear_backward_weight(plans(other), dy.view(), x.view(), dw.view(), room.workspace(), {});
  bias_backward(dy.view(), static_cast<float*>(db.view().data), room.workspace(), {});
  const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
  std::vector<double> want_x(size(m, k)), size_x(size(m, k)), want_w(size(n, k)), size_w(want_w),
      want_b(size(1, n)), size_b(want_b);
  const auto add = [](std::vector<double>& want, std::vector<double>& sizes, std::int64_t at,
                      double term) {
    want[static_cast<std::size_t>(at)] += term;
    sizes[static_cast<std::size_t>(at)] += std::abs(term);
  };
  for (std::int64_t i = 0; i < n * k; ++i) add(want_w, size_w, i, before.at(0, i));
  for (std::int64_t c = 0; c < n; ++c) add(want_b, size_b, c, bias.at(0, c));
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      add(want_b, size_b, c, dy.at(r, c));
      for (std::int64_t i = 0; i < k; ++i) {
        add(want_x, size_x, r * k + i, dy.at(r, c) * w.at(c, i));
        add(want_w, size_w, c * k + i, dy.at(r, c) * x.at(r, i));
      }
    }
  }
  const auto bounds = [](std::vector<double> sizes, std::int64_t terms) {
    for (double& s : sizes) s *= 4 * gamma(static_cast<double>(terms) + 2);
    return sizes;
  };
  const std::string what = " of (" + fuzz.drawn() + ")";
  fuzz.expect(dx, want_x, bounds(size_x, n), "dx");
  expect_close(dw.values(), want_w, bounds(size_w, m), DType::f32, "dw" + what);
  expect_close(db.values(), want_b, bounds(size_b, m), DType::f32, "db" + what);
  dw.expect_guards("dw" + what);
  db.expect_guards("db" + what);
}

/// The slope of GELU and the sum of it over rows in one visit, beside the two operations, which have twins of their own.
inline void twin_gelu_bias_backward(Fuzz& fuzz) {
  const std::int64_t m = fuzz.some(700), n = fuzz.some(900);
  const DType dtype = fuzz.activation();
  const Gelu kind = fuzz.one_of({Gelu::exact, Gelu::tanh});
  const Input x = fuzz.input(m, n, dtype, 2), dy = fuzz.input(m, n, dtype);
  const Output dx = fuzz.output(m, n, dtype);
  const DeviceMatrix want(m, n, dtype);
  const std::vector<float> before = random_values(n, 3);
  const Buffer db = Buffer::of(std::span<const float>(before)),
               want_db = Buffer::of(std::span<const float>(before));
  Buffer room(bias_backward_workspace(m, n));
  room.poison();
  gelu_bias_backward(x.view(), dy.view(), dx.view(), kind, db.as<float>(), room.workspace(), {});
  gelu_backward(x.view(), dy.view(), want.view(), kind, {});
  bias_backward(want.view(), want_db.as<float>(), room.workspace(), {});
  const std::string what = " of (" + fuzz.drawn() + ")";
  expect_same_bits(dx.matrix.values(), want.values(), "dx" + what);
  expect_same_bits(db.values<float>(), want_db.values<float>(), "db" + what);
  dx.matrix.expect_guards("dx" + what);
}

/// Heads normed and turned in one visit, and back: there with the bits of the two operations, back as near as fp32 sums are.
inline void twin_turn_heads(Fuzz& fuzz) {
  const std::int64_t tokens = fuzz.some(120), heads = 1 + fuzz.below(5),
                     kv_heads = 1 + fuzz.below(3),
                     d = fuzz.one_of<std::int64_t>({32, 64, 128, 256, 512});
  const DType dtype = fuzz.activation();
  fuzz.note(std::to_string(heads) + " and " + std::to_string(kv_heads) + " heads of " +
            std::to_string(d));
  const std::int64_t cols = (heads + kv_heads) * d;
  const Layout layout{.gap = 8 * static_cast<std::int64_t>(fuzz.below(2))};
  const auto matrix = [&](std::int64_t rows, std::int64_t width, DType type, std::uint64_t seed) {
    return DeviceMatrix::of(random_values(rows * width, seed), rows, width, type,
                            rows == 1 ? Layout{} : layout);
  };
  const DeviceMatrix x = matrix(tokens, cols, dtype, 1), q_norm = matrix(1, d, DType::f32, 2),
                     k_norm = matrix(1, d, DType::f32, 3), da = matrix(tokens, cols, dtype, 5),
                     db = matrix(tokens, cols, dtype, 5), a(tokens, cols, dtype, layout),
                     b(tokens, cols, dtype, layout);
  std::vector<float> cosines, sines;
  for (const float angle : random_values(tokens * d / 2, 4))
    cosines.push_back(std::cos(angle)), sines.push_back(std::sin(angle));
  const Buffer cos = Buffer::of(std::span<const float>(cosines)),
               sin = Buffer::of(std::span<const float>(sines)),
               sums = Buffer::of(std::span<const float>(std::vector<float>(4 * d)));
  Buffer inv(static_cast<std::size_t>(tokens * (heads + kv_heads)) * 4), other(inv.bytes()),
      room(std::max({turn_heads_backward_workspace(d), norm_backward_workspace(tokens * heads, d),
                     norm_backward_workspace(tokens * kv_heads, d)}));
  inv.poison(), other.poison(), room.poison();
  constexpr float eps = 1e-6f;
  const HeadTurn turn{heads,           kv_heads,       d, q_norm.view(), k_norm.view(), eps,
                      cos.as<float>(), sin.as<float>()};
  const auto part = [&](const DeviceMatrix& of, bool keys) {
    Matrix m = of.view();
    m.stride = m.row_stride();
    m.cols = (keys ? kv_heads : heads) * d;
    if (keys) {
      m.data =
          static_cast<std::byte*>(m.data) + heads * static_cast<std::int64_t>(row_bytes(dtype, d));
    }
    return m;
  };
  float *const q_inv = inv.as<float>(), *const k_inv = q_inv + tokens * heads,
               *const s = sums.as<float>();
  turn_heads(turn, x.view(), a.view(), q_inv, k_inv, {});
  rmsnorm_heads(part(x, false), q_norm.view(), eps, part(b, false), other.as<float>(), {});
  rmsnorm_heads(part(x, true), k_norm.view(), eps, part(b, true),
                other.as<float>() + tokens * heads, {});
  rope(b.view(), d, cos.as<float>(), sin.as<float>(), RopePairing::half, false, {});
  const std::string what = " of (" + fuzz.drawn() + ")";
  expect_same_bits(a.values(), b.values(), "turned" + what);
  expect_same_bits(inv.values<float>(), other.values<float>(), "inverses" + what);
  a.expect_guards("turned" + what);
  turn_heads_backward(turn, x.view(), q_inv, k_inv, da.view(), s, s + d, room.workspace(), {});
  rope(db.view(), d, cos.as<float>(), sin.as<float>(), RopePairing::half, true, {});
  rmsnorm_heads_backward(part(x, false), q_norm.view(), q_inv, part(db, false), part(db, false),
                         s + 2 * d, room.workspace(), {});
  rmsnorm_heads_backward(part(x, true), k_norm.view(), k_inv, part(db, true), part(db, true),
                         s + 3 * d, room.workspace(), {});
  const auto near = [&](std::span<const float> mine, std::span<const float> theirs,
                        const char* name) {
    double gap = 0, size = 1e-30;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      gap += std::pow(double{mine[i]} - double{theirs[i]}, 2);
      size += std::pow(double{theirs[i]}, 2);
    }
    // The two operations round once more in between than the one.
    EXPECT_LT(std::sqrt(gap / size), dtype == DType::f32 ? 1e-6 : 2 * storage_error(dtype))
        << name << what;
  };
  near(da.values(), db.values(), "dx");
  const std::vector<float> all = sums.values<float>();
  near(std::span(all).first(static_cast<std::size_t>(2 * d)),
       std::span(all).last(static_cast<std::size_t>(2 * d)), "weights");
  da.expect_guards("dx" + what);
}

/// Some parameters, cut into blocks, in two groups; the gaps between them are zero, and stay zero.
inline void twin_flat_step(Fuzz& fuzz) {
  std::vector<FlatBlock> blocks;
  std::int64_t end = 0;
  const std::uint32_t parameters = 1 + fuzz.below(6);
  for (std::uint32_t p = 0; p < parameters; ++p) {
    const auto group = static_cast<std::int32_t>(fuzz.below(2));
    for (std::int64_t left = fuzz.some(5000); left > 0; left -= norm_block) {
      blocks.push_back({end, static_cast<std::int32_t>(std::min(left, norm_block)), group});
      end += (blocks.back().count + 7) / 8 * 8;
    }
  }
  const auto draw = [&](float shift) {
    std::vector<float> v(static_cast<std::size_t>(end));
    for (const FlatBlock& block : blocks) {
      for (std::int64_t i = block.first; i < block.first + block.count; ++i)
        v[static_cast<std::size_t>(i)] = fuzz.uniform() - shift;
    }
    return v;
  };
  std::vector<float> weight = draw(0.5f), gradient = draw(0.5f), first = draw(0.5f),
                     second = draw(0);
  const auto buffer = [](const std::vector<float>& v) {
    return Buffer::of(std::span<const float>(v));
  };
  const DType type = fuzz.one_of({DType::bf16, DType::f16});
  Buffer copy(weight.size() * 2), total(sizeof(double));
  copy.poison();
  const auto count = static_cast<std::int64_t>(blocks.size());
  const Buffer w = buffer(weight), g = buffer(gradient), m = buffer(first), v = buffer(second),
               list = Buffer::of(std::span<const FlatBlock>(blocks)),
               room(flat_square_sum_workspace(count));
  const std::array<AdamWStep, 2> steps{at_step({.decay = 0.1f, .rate = 0.01f}, 3),
                                       at_step({.rate = 0.02f}, 7)};
  constexpr float scale = 0.75f;
  flat_adamw(list.as<FlatBlock>(), count,
             {w.as<float>(), g.as<float>(), m.as<float>(), v.as<float>(), copy.data(), type}, steps,
             scale, {});
  flat_square_sum(list.as<FlatBlock>(), count, g.as<float>(), total.as<double>(), room.workspace(),
                  {});
  core::ThreadPool pool(1);
  std::vector<double> sums;
  std::vector<std::byte> copied(weight.size() * 2);
  for (const FlatBlock& block : blocks) {
    const auto part = [&](std::vector<float>& all) {
      return std::span(all).subspan(static_cast<std::size_t>(block.first),
                                    static_cast<std::size_t>(block.count));
    };
    kernels::adamw(part(weight), part(gradient), scale, part(first), part(second),
                   steps[static_cast<std::size_t>(block.group)], pool);
    sums.push_back(0);
    square_sums(part(gradient), std::span(sums).last(1), pool);
    for (std::int64_t i = block.first; i < block.first + block.count; ++i)
      store(weight[static_cast<std::size_t>(i)], type, copied.data() + 2 * i);
  }
  synchronize({});
  expect_same_bits(w.values<float>(), weight, "weights of (" + fuzz.drawn() + ")");
  expect_same_bits(m.values<float>(), first, "first moments");
  expect_same_bits(v.values<float>(), second, "second moments");
  EXPECT_EQ(total.values<double>().front(), fold_square_sums(sums)) << fuzz.drawn();
  EXPECT_EQ(copy.values<std::byte>(), copied) << fuzz.drawn();
}

}  // namespace rose::kernels::gpu
