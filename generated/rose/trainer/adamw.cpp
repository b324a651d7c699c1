// Update one parameter after the other.

#include "rose/trainer/adamw.h"

#include <cmath>

namespace rose::trainer {

AdamW::AdamW(const model::WeightSet& weights, AdamWOptions options) : options_(options) {
  first_.assign(static_cast<std::size_t>(weights.parameter_count()), 0.0f);
  second_ = first_;
}

void AdamW::step(const model::WeightSet& weights, const model::Gradients& gradients, float rate,
                 float scale, core::ThreadPool& pool) {
  kernels::AdamWStep step = kernels::at_step(
      {.beta1 = options_.beta1, .beta2 = options_.beta2, .epsilon = options_.epsilon, .rate = rate},
      ++steps_);
  std::span<float> first(first_), second(second_);
  for (std::size_t p = 0; p < weights.parameters().size(); ++p) {
    const model::Parameter& parameter = weights.parameters()[p];
    const auto n = static_cast<std::size_t>(parameter.elements);
    step.decay = parameter.shape.size() > 1 ? options_.weight_decay : 0.0f;
    kernels::adamw(parameter.f32(), gradients.parameter(p), scale, first.first(n), second.first(n),
                   step, pool);
    first = first.subspan(n), second = second.subspan(n);
  }
}

// The length of all gradients together.
double global_norm(std::span<const float> all, const model::WeightSet& weights,
                   core::ThreadPool& pool) {
  std::vector<double> sums;
  for (const model::Parameter& parameter : weights.parameters()) {
    const auto n = static_cast<std::size_t>(parameter.elements), before = sums.size();
    sums.resize(before + (n + kernels::norm_block - 1) / kernels::norm_block);
    kernels::square_sums(all.first(n), std::span(sums).subspan(before), pool);
    all = all.subspan(n);
  }
  return std::sqrt(kernels::fold_square_sums(sums));
}

}  // namespace rose::trainer
