// Compiled once per instruction set: the guard flips with Highway's.
#if defined(ROSE_KERNELS_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ROSE_KERNELS_LANES_INL_H
#undef ROSE_KERNELS_LANES_INL_H
#else
#define ROSE_KERNELS_LANES_INL_H
#endif

#include "rose/kernels/targets.h"

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "rose/kernels/elementary.h"
#include "rose/kernels/numerics.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::CappedTag<float, numerics::lanes>;
using Vec = hn::Vec<Tag>;
inline constexpr std::int64_t width = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
inline constexpr int parts = static_cast<int>(numerics::lanes / width);

// Fuse multiply and add, by hand where the processor cannot.
HWY_INLINE Vec fma(Vec a, Vec b, Vec c) {
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || (HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON)
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float x[numerics::lanes], y[numerics::lanes], z[numerics::lanes];
  hn::Store(a, Tag(), x);
  hn::Store(b, Tag(), y);
  hn::Store(c, Tag(), z);
  for (int i = 0; i < width; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(Tag(), z);
#endif
}

HWY_INLINE Vec set(float x) {
  return hn::Set(Tag(), x);
}
HWY_INLINE Vec load(const float* p) {
  return hn::LoadU(Tag(), p);
}
HWY_INLINE void store(Vec v, float* p) {
  hn::StoreU(v, Tag(), p);
}

// Add sixteen lanes in a fixed tree.

/// Sixteen running sums, in one, two or four registers.
struct Sum16 {
  Vec part[parts];
};

HWY_INLINE Sum16 zero16() {
  Sum16 s;
  for (int i = 0; i < parts; ++i) s.part[i] = hn::Zero(Tag());
  return s;
}

/// Halves a register until one lane is left: lane i takes lane i + half.
template <class V>
HWY_INLINE float fold(V v) {
#if HWY_TARGET == HWY_SCALAR
  return hn::GetLane(v);
#else
  using D = hn::DFromV<V>;
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return fold(hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    const auto pairs = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(pairs, hn::Shuffle2301(pairs)));
  }
#endif
}

/// Lane i takes lane i + 8, then i + 4, i + 2, i + 1.
HWY_INLINE float total(Sum16 s) {
  for (int half = parts / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) s.part[i] = hn::Add(s.part[i], s.part[i + half]);
  }
  return fold(s.part[0]);
}

// Read and write the ragged end of an array.
HWY_INLINE Vec load_some(const float* p, std::int64_t count, float fill = 0.0f) {
  if (count >= width) return load(p);
  HWY_ALIGN float x[numerics::lanes];
  for (std::int64_t i = 0; i < width; ++i) x[i] = i < count ? p[i] : fill;
  return hn::Load(Tag(), x);
}

HWY_INLINE void store_some(Vec v, float* p, std::int64_t count) {
  if (count >= width) return store(v, p);
  HWY_ALIGN float x[numerics::lanes];
  hn::Store(v, Tag(), x);
  for (std::int64_t i = 0; i < count; ++i) p[i] = x[i];
}

// Exponentiate a register as the scalar twin does.
HWY_INLINE Vec exp(Vec x) {
  namespace k = exp_constants;
  x = hn::IfThenElse(hn::Gt(x, set(k::highest)), set(k::highest), x);
  x = hn::IfThenElse(hn::Lt(x, set(k::lowest)), set(k::lowest), x);
  const Vec shifted = fma(x, set(k::log2_e), set(k::to_integer));
  const Vec n = hn::Sub(shifted, set(k::to_integer));
  const Vec r = fma(n, set(-k::ln2_low), fma(n, set(-k::ln2_high), x));
  Vec p = set(k::c[0]);
  for (int i = 1; i < 6; ++i) p = fma(p, r, set(k::c[i]));
  const Vec y = hn::Add(fma(p, hn::Mul(r, r), r), set(1.0f));
  const hn::RebindToSigned<Tag> integers;
  const auto i = hn::Sub(hn::BitCast(integers, shifted), hn::BitCast(integers, set(k::to_integer)));
  const auto half = hn::ShiftRight<1>(i);
  const auto bias = hn::Set(integers, 127);
  const Vec first = hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Vec second = hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::Add(hn::Sub(i, half), bias)));
  return hn::Mul(hn::Mul(y, first), second);
}

// And its hyperbolic tangent.
HWY_INLINE Vec tanh(Vec x) {
  namespace k = tanh_constants;
  const Vec magnitude = hn::Abs(x);
  const Vec z = hn::Mul(x, x);
  Vec p = set(k::c[0]);
  for (int i = 1; i < 5; ++i) p = fma(p, z, set(k::c[i]));
  const Vec near_zero = fma(hn::Mul(p, z), x, x);
  const Vec grown = hn::Add(exp(hn::Add(magnitude, magnitude)), set(1.0f));
  const Vec far = hn::Sub(set(1.0f), hn::Div(set(2.0f), grown));
  return hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, set(k::small)), near_zero, far), x);
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the toggling guard
