// Rotations and embeddings: the CPU's bits.
#pragma once

#include "rose/core/parallel.h"
#include "rose/kernels/embedding_backward.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/rope.h"
#include "twin_elementwise.h"

namespace rose::kernels::gpu {

/// Angles of fp32 positions and frequencies; an angle's own rounding is the larger part of the error.
inline void twin_rope_table(Fuzz& fuzz) {
  const std::int64_t tokens = fuzz.size(300),
                     pairs = fuzz.one_of<std::int64_t>({1, 3, 32, 64, 128});
  const float scale = fuzz.one_of({1.0f, 1.25f});
  std::vector<std::int32_t> places;
  std::vector<float> frequencies;
  for (std::int64_t t = 0; t < tokens; ++t)
    places.push_back(static_cast<std::int32_t>(fuzz.below(100'000)));
  for (std::int64_t i = 0; i < pairs; ++i) frequencies.push_back(fuzz.uniform());
  const Integers positions(places);
  const Buffer on_device = Buffer::of(std::span<const float>(frequencies));
  const auto bytes = static_cast<std::size_t>(tokens * pairs) * sizeof(float);
  Buffer c(bytes), s(bytes);
  c.poison(), s.poison();
  rope_table(positions.data(), tokens, on_device.as<float>(), pairs, scale, c.as<float>(),
             s.as<float>(), {});
  std::vector<double> want_c, want_s, bounds;
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle = double{static_cast<float>(positions[t])} *
                           double{frequencies[static_cast<std::size_t>(i)]};
      want_c.push_back(std::cos(angle) * double{scale});
      want_s.push_back(std::sin(angle) * double{scale});
      bounds.push_back(double{scale} * (std::abs(angle) * 0x1p-24 + 0x1p-21));
    }
  }
  synchronize({});
  expect_close(c.values<float>(), want_c, bounds, DType::f32, "cos of (" + fuzz.drawn() + ")");
  expect_close(s.values<float>(), want_s, bounds, DType::f32, "sin of (" + fuzz.drawn() + ")");
}

inline void twin_rope(Fuzz& fuzz) {
  const std::int64_t tokens = fuzz.size(40), heads = 1 + fuzz.below(6);
  const std::int64_t pairs = fuzz.one_of<std::int64_t>({1, 3, 32, 64, 64, 128, 20});
  const DType dtype = row_type(fuzz);
  const RopePairing pairing = fuzz.one_of({RopePairing::half, RopePairing::interleaved});
  const bool inverse = fuzz.coin();
  fuzz.note(std::to_string(heads) + " heads of " + std::to_string(2 * pairs));
  std::vector<float> cos, sin;
  for (std::int64_t i = 0; i < tokens * pairs; ++i) {
    const float angle = 100 * fuzz.uniform();
    cos.push_back(std::cos(angle));
    sin.push_back(std::sin(angle));
  }
  const Buffer c = Buffer::of(std::span<const float>(cos)),
               s = Buffer::of(std::span<const float>(sin));
  const Input x = fuzz.input(tokens, heads * 2 * pairs, dtype);
  rope(x.view(), 2 * pairs, c.as<float>(), s.as<float>(), pairing, inverse, {});
  std::vector<float> expected = x.values();
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int64_t head = (t * heads + h) * 2 * pairs;
        const bool half = pairing == RopePairing::half;
        float& a = expected[static_cast<std::size_t>(head + (half ? i : 2 * i))];
        float& b = expected[static_cast<std::size_t>(head + (half ? i + pairs : 2 * i + 1))];
        const float co = cos[static_cast<std::size_t>(t * pairs + i)];
        const float si = (inverse ? -1.0f : 1.0f) * sin[static_cast<std::size_t>(t * pairs + i)];
        const float turned_a = a * co - b * si, turned_b = b * co + a * si;
        a = rounded(turned_a, dtype);
        b = rounded(turned_b, dtype);
      }
    }
  }
  expect_same_bits(x.current(), expected, "rope of (" + fuzz.drawn() + ")");
}

inline void twin_embedding(Fuzz& fuzz) {
  const std::int64_t tokens = fuzz.size(600), cols = fuzz.some(3000),
                     vocab = fuzz.some(fuzz.coin() ? 3 : 400);
  const DType dtype = row_type(fuzz), stored = row_type(fuzz);
  const Input table = fuzz.input(vocab, cols, stored), dy = fuzz.input(tokens, cols, dtype);
  std::vector<std::int32_t> drawn;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::uint32_t any = fuzz.below(static_cast<std::uint32_t>(vocab));
    drawn.push_back(static_cast<std::int32_t>(fuzz.coin() ? any : any / 2));
  }
  const Integers ids(drawn);
  const Output out = fuzz.output(tokens, cols, dtype);
  embedding(ids.data(), table.view(), out.view(), {});
  std::vector<float> expected;
  for (const std::int32_t id : drawn) {
    for (std::int64_t c = 0; c < cols; ++c)
      expected.push_back(rounded(static_cast<float>(table.at(id, c)), dtype));
  }
  expect_same_bits(out.matrix.values(), expected, "embedding of (" + fuzz.drawn() + ")");
  out.matrix.expect_guards("embedding");

  const Input gradient = fuzz.input(vocab, cols, DType::f32);
  const Buffer workspace(embedding_backward_workspace(tokens));
  embedding_backward(ids.data(), dy.view(), gradient.view(), workspace.workspace(), {});
  std::vector<float> twin = gradient.values();
  kernels::embedding_backward(drawn, dy.values(), twin, cols, core::default_pool());
  expect_same_bits(gradient.current(), twin, "embedding backward of (" + fuzz.drawn() + ")");
}

}  // namespace rose::kernels::gpu
