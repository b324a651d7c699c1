// Bend the hidden units.

#include "rose/kernels/activation.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/activation.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <cmath>
#include <cstddef>

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// Evaluate SwiGLU's gate and GPT-2's GELU a register at a time.
Vec silu(Vec z) {
  return hn::Div(z, hn::Add(set(1.0f), exp(hn::Neg(z))));
}

void silu_range(const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += width)
    store_some(silu(load_some(x + i, count - i)), y + i, count - i);
}

void silu_multiply_range(const float* gate, const float* up, float* out, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += width) {
    const Vec bent = silu(load_some(gate + i, count - i));
    store_some(hn::Mul(bent, load_some(up + i, count - i)), out + i, count - i);
  }
}

void gelu_tanh_range(const float* x, float* y, std::int64_t count) {
  const Vec root = set(0.79788456080286536f);  // sqrt(2 / pi)
  for (std::int64_t i = 0; i < count; i += width) {
    const Vec z = load_some(x + i, count - i);
    const Vec cube = hn::Mul(hn::Mul(z, z), z);
    const Vec bent = hn::Add(set(1.0f), tanh(hn::Mul(root, fma(set(0.044715f), cube, z))));
    store_some(hn::Mul(hn::Mul(set(0.5f), z), bent), y + i, count - i);
  }
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "rose/core/error.h"

namespace rose::kernels {

// Split the units over the threads.
HWY_EXPORT(silu_range);
HWY_EXPORT(silu_multiply_range);
HWY_EXPORT(gelu_tanh_range);

void gelu(std::span<const float> x, std::span<float> y, Gelu kind, core::ThreadPool& pool) {
  if (x.size() != y.size())
    throw core::Error(core::Code::invalid_argument, "x and y differ in size").in("gelu");
  pool.for_range(
      static_cast<std::int64_t>(x.size()), 4096, [&](std::int64_t begin, std::int64_t end) {
        if (kind == Gelu::tanh) {
          HWY_DYNAMIC_DISPATCH(gelu_tanh_range)(x.data() + begin, y.data() + begin, end - begin);
          return;
        }
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          const double z = static_cast<double>(x[i]);
          y[i] = static_cast<float>(0.5 * z * (1.0 + std::erf(z * 0.70710678118654752)));
        }
      });
}

void silu(std::span<const float> x, std::span<float> y, core::ThreadPool& pool) {
  if (x.size() != y.size())
    throw core::Error(core::Code::invalid_argument, "x and y differ in size").in("silu");
  pool.for_range(static_cast<std::int64_t>(x.size()), 4096,
                 [&](std::int64_t begin, std::int64_t end) {
                   HWY_DYNAMIC_DISPATCH(silu_range)
                   (x.data() + begin, y.data() + begin, end - begin);
                 });
}

void silu_multiply(std::span<const float> gate, std::span<const float> up, std::span<float> out,
                   core::ThreadPool& pool) {
  if (gate.size() != up.size() || gate.size() != out.size()) {
    throw core::Error(core::Code::invalid_argument, "gate, up and out differ in size")
        .in("silu_multiply");
  }
  pool.for_range(static_cast<std::int64_t>(gate.size()), 4096,
                 [&](std::int64_t begin, std::int64_t end) {
                   HWY_DYNAMIC_DISPATCH(silu_multiply_range)
                   (gate.data() + begin, up.data() + begin, out.data() + begin, end - begin);
                 });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
