// Visit every parameter once.

#include "rose/kernels/adamw.h"

#include <algorithm>
#include <array>

#include "rose/core/error.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/adamw.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// Update a register of elements at a time.
void adamw_range(float* weight, const float* gradient, float scale, float* first, float* second,
                 const AdamWStep& step, std::int64_t count) {
  const Vec fresh1 = set(1.0f - step.beta1), fresh2 = set(1.0f - step.beta2);
  for (std::int64_t i = 0; i < count; i += width) {
    const std::int64_t n = count - i;
    const Vec g = hn::Mul(load_some(gradient + i, n), set(scale)), w = load_some(weight + i, n);
    const Vec m = hn::Add(hn::Mul(set(step.beta1), load_some(first + i, n)), hn::Mul(fresh1, g));
    const Vec v =
        hn::Add(hn::Mul(set(step.beta2), load_some(second + i, n)), hn::Mul(hn::Mul(fresh2, g), g));
    const Vec root = hn::Sqrt(hn::Mul(v, set(step.correction2)));
    const Vec direction =
        hn::Div(hn::Mul(m, set(step.correction1)), hn::Add(root, set(step.epsilon)));
    const Vec pull = hn::Add(direction, hn::Mul(set(step.decay), w));
    store_some(hn::Sub(w, hn::Mul(set(step.rate), pull)), weight + i, n);
    store_some(m, first + i, n);
    store_some(v, second + i, n);
  }
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::kernels {

// Compute the corrections, and share the elements out.
HWY_EXPORT(adamw_range);

AdamWStep at_step(AdamWStep step, std::int64_t t) {
  const auto correction = [t](float beta) {
    return static_cast<float>(1.0 /
                              (1.0 - std::pow(static_cast<double>(beta), static_cast<double>(t))));
  };
  step.correction1 = correction(step.beta1);
  step.correction2 = correction(step.beta2);
  return step;
}

void adamw(std::span<float> weight, std::span<const float> gradient, float scale,
           std::span<float> first, std::span<float> second, const AdamWStep& step,
           core::ThreadPool& pool) {
  if (gradient.size() != weight.size() || first.size() != weight.size() ||
      second.size() != weight.size()) {
    throw core::Error(core::Code::invalid_argument, "weights, gradients and moments differ in size")
        .in("adamw");
  }
  constexpr std::int64_t grain = 4096;
  pool.for_range(static_cast<std::int64_t>(weight.size()), grain,
                 [&](std::int64_t begin, std::int64_t end) {
                   HWY_DYNAMIC_DISPATCH(adamw_range)
                   (weight.data() + begin, gradient.data() + begin, scale, first.data() + begin,
                    second.data() + begin, step, end - begin);
                 });
}

// Add squares by blocks, and blocks by a tree.
void square_sums(std::span<const float> gradient, std::span<double> sums, core::ThreadPool& pool) {
  constexpr std::size_t lanes = 128, neighbours = 8, block = lanes * neighbours;
  static_assert(block == norm_block);
  constexpr std::int64_t grain = 16;
  const auto sum_of = [&](std::size_t b) {
    std::array<double, lanes> lane{};
    const std::size_t end = std::min(gradient.size(), (b + 1) * block);
    for (std::size_t i = b * block; i < end; ++i) {
      const auto g = static_cast<double>(gradient[i]);
      lane[i % block / neighbours] += g * g;
    }
    for (std::size_t half = lanes / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    return lane[0];
  };
  pool.for_range(
      static_cast<std::int64_t>(sums.size()), grain, [&](std::int64_t begin, std::int64_t end) {
        for (auto b = static_cast<std::size_t>(begin); b < static_cast<std::size_t>(end); ++b)
          sums[b] = sum_of(b);
      });
}

double fold_square_sums(std::span<double> sums) {
  for (std::size_t stride = 1; stride < sums.size(); stride *= 2) {
    for (std::size_t i = 0; i + stride < sums.size(); i += 2 * stride) sums[i] += sums[i + stride];
  }
  return sums.empty() ? 0.0 : sums[0];
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
