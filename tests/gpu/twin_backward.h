// The way back through a linear layer beside double precision, and the step of a whole model bit for bit as the CPU's.
#pragma once

#include <array>
#include <cmath>

#include "rose/core/parallel.h"
#include "rose/kernels/gpu/flat_step.h"
#include "rose/kernels/gpu/linear_backward.h"
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
