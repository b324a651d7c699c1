// Activations, backward.

#include "rose/kernels/activation_backward.h"

#include <cmath>
#include <numbers>

#include "rose/core/error.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/activation_backward.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// The two derivatives, a vector at a time.
Vec gelu_slope(Vec x) {
  constexpr float c = 0.7978845608f;  // sqrt(2 / pi)
  const Vec one = set(1.0f), half = set(0.5f);
  const Vec square = hn::Mul(x, x);
  const Vec t = tanh(hn::Mul(hn::Mul(set(c), x), fma(set(0.044715f), square, one)));
  const Vec dz = hn::Mul(set(c), fma(set(0.134145f), square, one));
  const Vec tail = hn::Mul(hn::Mul(half, x), hn::Mul(fma(hn::Neg(t), t, one), dz));
  return fma(half, hn::Add(one, t), tail);
}

// The logistic function. exp of a large argument is infinity, and 1 / infinity the right limit.
Vec logistic(Vec x) {
  const Vec one = set(1.0f);
  return hn::Div(one, hn::Add(one, exp(hn::Neg(x))));
}

// Walk the elements of a thread's share.
void gelu_tanh_backward(const float* x, const float* dy, float* dx, std::int64_t begin,
                        std::int64_t end) {
  for (std::int64_t i = begin; i < end; i += width) {
    const Vec slope = gelu_slope(load_some(x + i, end - i));
    store_some(hn::Mul(load_some(dy + i, end - i), slope), dx + i, end - i);
  }
}

void silu_backward_range(const float* x, const float* dy, float* dx, std::int64_t begin,
                         std::int64_t end) {
  const Vec one = set(1.0f);
  for (std::int64_t i = begin; i < end; i += width) {
    const Vec z = load_some(x + i, end - i), s = logistic(z);
    const Vec ds = hn::Mul(load_some(dy + i, end - i), s);
    store_some(hn::Mul(ds, fma(z, hn::Sub(one, s), one)), dx + i, end - i);
  }
}

void swiglu_backward_range(const float* gate, const float* up, const float* dy, float* dgate,
                           float* dup, std::int64_t begin, std::int64_t end) {
  const Vec one = set(1.0f);
  for (std::int64_t i = begin; i < end; i += width) {
    const std::int64_t n = end - i;
    const Vec g = load_some(gate + i, n), u = load_some(up + i, n), s = logistic(g);
    const Vec ds = hn::Mul(load_some(dy + i, n), s);
    store_some(hn::Mul(hn::Mul(ds, u), fma(g, hn::Sub(one, s), one)), dgate + i, n);
    store_some(hn::Mul(ds, g), dup + i, n);
  }
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::kernels {
namespace {

HWY_EXPORT(gelu_tanh_backward);
HWY_EXPORT(silu_backward_range);
HWY_EXPORT(swiglu_backward_range);
constexpr std::int64_t kGrain = 4096;

// Elementwise means equally long.
void expect_equal(std::size_t a, std::size_t b, const char* what) {
  if (a == b) return;
  throw core::Error(core::Code::invalid_argument,
                    "arrays of an elementwise operation differ in length")
      .in(what);
}

}  // namespace

// Divide the elements among the threads.
void gelu_backward(std::span<const float> x, std::span<const float> dy, std::span<float> dx,
                   Gelu kind, core::ThreadPool& pool) {
  expect_equal(x.size(), dy.size(), "gelu_backward");
  expect_equal(x.size(), dx.size(), "gelu_backward");
  pool.for_range(
      static_cast<std::int64_t>(x.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
        if (kind == Gelu::tanh) {
          HWY_DYNAMIC_DISPATCH(gelu_tanh_backward)(x.data(), dy.data(), dx.data(), begin, end);
          return;
        }
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          const float v = x[i], root = std::numbers::sqrt2_v<float>;
          const float density = std::exp(-0.5f * v * v) * std::numbers::inv_sqrtpi_v<float> / root;
          dx[i] = dy[i] * (0.5f * (1.0f + std::erf(v / root)) + v * density);
        }
      });
}

void silu_backward(std::span<const float> x, std::span<const float> dy, std::span<float> dx,
                   core::ThreadPool& pool) {
  expect_equal(x.size(), dy.size(), "silu_backward");
  expect_equal(x.size(), dx.size(), "silu_backward");
  pool.for_range(static_cast<std::int64_t>(x.size()), kGrain,
                 [&](std::int64_t begin, std::int64_t end) {
                   HWY_DYNAMIC_DISPATCH(silu_backward_range)
                   (x.data(), dy.data(), dx.data(), begin, end);
                 });
}

void silu_multiply_backward(std::span<const float> gate, std::span<const float> up,
                            std::span<const float> dy, std::span<float> dgate, std::span<float> dup,
                            core::ThreadPool& pool) {
  for (const std::size_t size : {up.size(), dy.size(), dgate.size(), dup.size()}) {
    expect_equal(gate.size(), size, "silu_multiply_backward");
  }
  pool.for_range(static_cast<std::int64_t>(gate.size()), kGrain,
                 [&](std::int64_t begin, std::int64_t end) {
                   HWY_DYNAMIC_DISPATCH(swiglu_backward_range)
                   (gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), begin, end);
                 });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
