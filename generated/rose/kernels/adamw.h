// One step of AdamW, written out.

#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "rose/core/parallel.h"

#ifdef __CUDACC__
#define ROSE_HOST_DEVICE __host__ __device__
#else
#define ROSE_HOST_DEVICE
#endif

namespace rose::kernels {

/// The constants of a step.
struct AdamWStep {
  float beta1 = 0.9f, beta2 = 0.99f, epsilon = 1e-8f;
  float decay = 0.0f;                            ///< lambda
  float rate = 0.0f;                             ///< eta
  float correction1 = 1.0f, correction2 = 1.0f;  ///< 1 / (1 - beta^t)
};

/// Sets the corrections of step t, which counts from 1.
AdamWStep at_step(AdamWStep step, std::int64_t t);

struct AdamWState {
  float weight, first, second;  ///< theta, m, v
};

/// Every operation is a rounded fp32 operation.
ROSE_HOST_DEVICE inline AdamWState adamw_element(AdamWState s, float gradient,
                                                 const AdamWStep& step) {
  s.first = step.beta1 * s.first + (1.0f - step.beta1) * gradient;
  s.second = step.beta2 * s.second + (1.0f - step.beta2) * gradient * gradient;
  const float direction =
      (s.first * step.correction1) / (std::sqrt(s.second * step.correction2) + step.epsilon);
  s.weight -= step.rate * (direction + step.decay * s.weight);
  return s;
}

/// Updates weights and moments in place from gradients times `scale`. Elements are independent: threads do not show.
void adamw(std::span<float> weight, std::span<const float> gradient, float scale,
           std::span<float> first, std::span<float> second, const AdamWStep& step,
           core::ThreadPool& pool);

// Measure a gradient in an order that neither threads nor machines disturb.
inline constexpr std::int64_t norm_block = 1024;

/// The sums of squares of the blocks of one parameter's gradient: ceil(elements / 1024) numbers.
void square_sums(std::span<const float> gradient, std::span<double> sums, core::ThreadPool& pool);

/// The tree over the sums of all blocks of all parameters, in order; the sums are used up. Zero without blocks.
double fold_square_sums(std::span<double> sums);

}  // namespace rose::kernels
