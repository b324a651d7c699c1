// Elementwise operations beside double precision.
#pragma once

#include <cmath>

#include "rose/kernels/gpu/dropout.h"
#include "rose/kernels/gpu/elementwise.h"
#include "twins.h"

namespace rose::kernels::gpu {

inline constexpr double fast_unit = 0x1p-22;  // what ex2.approx and a fast division leave, relative
inline constexpr double flushed = 0x1p-124;   // a logistic below this may become 0

inline DType row_type(Fuzz& fuzz) {
  const DType dtype = fuzz.one_of({DType::bf16, DType::f16, DType::f32});
  fuzz.note(std::string(info(dtype).name));
  return dtype;
}

/// Draws shape and type, and expects reference(i) within bound(i) from call(inputs, outputs).
struct Elements {
  explicit Elements(Fuzz& f) : fuzz(f), rows(f.size(70)), cols(f.size(5000)), dtype(row_type(f)) {}
  Input input(float scale = 1) { return fuzz.input(rows, cols, dtype, scale); }
  Output output() { return fuzz.output(rows, cols, dtype); }
  template <class F>
  void expect(const Output& output, const char* name,
              F&& f) {  // f(row, col) -> pair of reference and bound
    std::vector<double> reference, bounds;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto [value, bound] = f(r, c);
        reference.push_back(value);
        bounds.push_back(bound);
      }
    }
    fuzz.expect(output, reference, bounds, name);
  }
  Fuzz& fuzz;
  std::int64_t rows, cols;
  DType dtype;
};

using Bounded = std::pair<double, double>;

inline void twin_add(Fuzz& fuzz) {
  Elements e(fuzz);
  const Input a = e.input(), b = e.input();
  const Output out = e.output();
  add(a.view(), b.view(), out.view(), {});
  e.expect(out, "sum",
           [&](std::int64_t r, std::int64_t c) { return Bounded(a.at(r, c) + b.at(r, c), 0.0); });
}

inline void twin_silu_multiply(Fuzz& fuzz) {
  Elements e(fuzz);
  const Input gate = e.input(4), up = e.input();
  const Output out = e.output();
  silu_multiply(gate.view(), up.view(), out.view(), {});
  // Below f16's normal numbers the rounding between the two operations is absolute.
  const double half_step = e.dtype == DType::f16 ? 0x1p-25 : 0.0;
  e.expect(out, "product", [&](std::int64_t r, std::int64_t c) {
    const double z = gate.at(r, c), y = z / (1 + std::exp(-z)) * up.at(r, c);
    return Bounded(y, std::abs(y) * (2 * storage_error(e.dtype) + (4 + std::abs(z)) * fast_unit) +
                          flushed * std::abs(z * up.at(r, c)) + half_step * std::abs(up.at(r, c)));
  });
}

inline void twin_silu_multiply_backward(Fuzz& fuzz) {
  Elements e(fuzz);
  const Input gate = e.input(4), up = e.input(), dy = e.input();
  const Output dgate = e.output(), dup = e.output();
  silu_multiply_backward(gate.view(), up.view(), dy.view(), dgate.view(), dup.view(), {});
  const auto bound = [&](std::int64_t r, std::int64_t c) {
    const double z = std::abs(gate.at(r, c));
    return (1 + z) * (4 + z) * fast_unit * std::abs(dy.at(r, c));
  };
  e.expect(dgate, "dgate", [&](std::int64_t r, std::int64_t c) {
    const double z = gate.at(r, c), s = 1 / (1 + std::exp(-z)), u = up.at(r, c);
    return Bounded(dy.at(r, c) * u * s * (1 + z * (1 - s)), bound(r, c) * std::abs(u));
  });
  e.expect(dup, "dup", [&](std::int64_t r, std::int64_t c) {
    const double z = gate.at(r, c);
    return Bounded(dy.at(r, c) * z / (1 + std::exp(-z)), bound(r, c));
  });
}

inline void twin_silu(Fuzz& fuzz) {
  Elements e(fuzz);
  const Input x = e.input(4), dy = e.input();
  const Output y = e.output(), dx = e.output();
  silu(x.view(), y.view(), {});
  silu_backward(x.view(), dy.view(), dx.view(), {});
  e.expect(y, "silu", [&](std::int64_t r, std::int64_t c) {
    const double z = x.at(r, c), value = z / (1 + std::exp(-z));
    return Bounded(value, std::abs(value) * (4 + std::abs(z)) * fast_unit + flushed * std::abs(z));
  });
  e.expect(dx, "dx", [&](std::int64_t r, std::int64_t c) {
    const double z = x.at(r, c), s = 1 / (1 + std::exp(-z)), size = std::abs(z);
    return Bounded(dy.at(r, c) * s * (1 + z * (1 - s)),
                   (1 + size) * (4 + size) * fast_unit * std::abs(dy.at(r, c)));
  });
}

// GELU, both kinds, and its slope.
inline double gelu_value(double z, Gelu kind) {
  if (kind == Gelu::exact) return 0.5 * z * std::erfc(-z / std::sqrt(2.0));
  const double u = std::sqrt(2 / 3.14159265358979323846) * (z + 0.044715 * z * z * z);
  return z / (1 + std::exp(-2 * u));
}
inline double gelu_slope_value(double z, Gelu kind) {
  constexpr double pi = 3.14159265358979323846;
  if (kind == Gelu::exact) {
    return 0.5 * std::erfc(-z / std::sqrt(2.0)) + z * std::exp(-z * z / 2) / std::sqrt(2 * pi);
  }
  const double root = std::sqrt(2 / pi), u = root * (z + 0.044715 * z * z * z);
  const double s = 1 / (1 + std::exp(-2 * u));
  return s + z * s * (1 - s) * 2 * root * (1 + 0.134145 * z * z);
}

inline void twin_gelu(Fuzz& fuzz) {
  Elements e(fuzz);
  const Gelu kind = fuzz.one_of({Gelu::exact, Gelu::tanh});
  const Input x = e.input(3), dy = e.input();
  const Output y = e.output(), dx = e.output();
  gelu(x.view(), y.view(), kind, {});
  gelu_backward(x.view(), dy.view(), dx.view(), kind, {});
  // exp of an argument a with relative error u is off by |a| u; a grows as the cube of z for the tanh form.
  const auto growth = [](double z) { return (1 + std::abs(z)) * (4 + std::abs(z * z * z)); };
  e.expect(y, "gelu", [&](std::int64_t r, std::int64_t c) {
    const double z = x.at(r, c), value = gelu_value(z, kind);
    const double share = kind == Gelu::exact ? std::abs(z) : std::abs(value) * growth(z);
    return Bounded(value, share * fast_unit + flushed * std::abs(z));
  });
  e.expect(dx, "dx", [&](std::int64_t r, std::int64_t c) {
    const double z = x.at(r, c);
    // the slope's derivative is bounded by 1.2, and s (1 - s) falls faster than any power grows
    return Bounded(dy.at(r, c) * gelu_slope_value(z, kind),
                   std::abs(dy.at(r, c)) * (4 + std::abs(z)) * 4 * fast_unit);
  });
}

inline void twin_cast(Fuzz& fuzz) {
  const std::int64_t rows = fuzz.size(70), cols = fuzz.size(3000);
  const DType from = row_type(fuzz), to = row_type(fuzz);
  const Input x = fuzz.input(rows, cols, from);
  const Output y = fuzz.output(rows, cols, to);
  cast(x.view(), y.view(), {});
  std::vector<float> expected = x.values();
  for (float& value : expected) value = rounded(value, to);
  expect_same_bits(y.matrix.values(), expected, "cast of (" + fuzz.drawn() + ")");
  y.matrix.expect_guards("cast");
}

inline void twin_cast_stochastic(Fuzz& fuzz) {
  const std::int64_t rows = fuzz.size(40), cols = fuzz.size(3000);
  const RoundingKey key{
      .seed = fuzz.below(1000) * 0x100000001ull,
      .step = fuzz.below(1 << 30),
      .parameter = fuzz.below(400),
      .first_element = fuzz.coin() ? 8ll * fuzz.below(1 << 30) : fuzz.below(1 << 30)};
  const Input x = fuzz.input(rows, cols, DType::f32);
  const Output y = fuzz.output(rows, cols, DType::bf16);
  cast_stochastic(x.view(), key, y.view(), {});
  std::vector<bf16> twin(x.values().size());
  to_bf16_stochastic(x.values(), key, twin, core::default_pool());
  std::vector<float> expected;
  for (const bf16 value : twin) expected.push_back(to_float(value));
  expect_same_bits(y.matrix.values(), expected, "stochastic cast of (" + fuzz.drawn() + ")");
  y.matrix.expect_guards("stochastic cast");
}

inline void twin_dropout(Fuzz& fuzz) {
  Elements e(fuzz);
  const Dropout how{.rate = fuzz.coin() ? 0.9f * fuzz.uniform() : 0.0f,
                    .scale = 0.25f + fuzz.uniform(),
                    .seed = fuzz.below(1000) * 0x100000001ull,
                    .stream = fuzz.below(1 << 30) * 0x10001ull};
  const Input x = e.input();
  const Output y = e.output();
  dropout(x.view(), how, y.view(), {});
  std::vector<float> expected(x.values().size());
  dropout(x.values(), how, 0, expected, core::default_pool());
  for (float& value : expected) value = rounded(value, e.dtype);
  expect_same_bits(y.matrix.values(), expected, "dropout of (" + fuzz.drawn() + ")");
  y.matrix.expect_guards("dropout");
}

}  // namespace rose::kernels::gpu
