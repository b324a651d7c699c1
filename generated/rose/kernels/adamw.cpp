// Visit every parameter once.

#include "rose/kernels/adamw.h"

#include <algorithm>
#include <array>
#include <vector>

#include "rose/core/error.h"

namespace rose::kernels {

AdamWStep at_step(AdamWStep step, std::int64_t t) {
  const auto correction = [t](float beta) {
    return static_cast<float>(1.0 / (1.0 - std::pow(double{beta}, static_cast<double>(t))));
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
  pool.for_range(
      static_cast<std::int64_t>(weight.size()), grain, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
          const AdamWState next =
              adamw_element({weight[i], first[i], second[i]}, gradient[i] * scale, step);
          weight[i] = next.weight, first[i] = next.first, second[i] = next.second;
        }
      });
}

// Add squares by blocks, and blocks by a tree.
void square_sums(std::span<const float> gradient, std::span<double> sums) {
  constexpr std::size_t lanes = 128, neighbours = 8, block = lanes * neighbours;
  for (std::size_t b = 0; b < sums.size(); ++b) {
    std::array<double, lanes> lane{};
    const std::size_t end = std::min(gradient.size(), (b + 1) * block);
    for (std::size_t i = b * block; i < end; ++i) {
      const double g = gradient[i];
      lane[i % block / neighbours] += g * g;
    }
    for (std::size_t half = lanes / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    sums[b] = lane[0];
  }
}

double fold_square_sums(std::span<double> sums) {
  for (std::size_t stride = 1; stride < sums.size(); stride *= 2) {
    for (std::size_t i = 0; i + stride < sums.size(); i += 2 * stride) sums[i] += sums[i + stride];
  }
  return sums.empty() ? 0.0 : sums[0];
}

}  // namespace rose::kernels
