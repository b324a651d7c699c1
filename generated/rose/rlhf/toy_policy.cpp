// Add four rows, and take a step.

#include "rose/rlhf/toy_policy.h"

#include <cmath>

namespace rose::rlhf {

std::size_t ToyPolicy::row(std::span<const std::int32_t> history, std::size_t back) {
  const std::size_t n = history.size();
  const std::int32_t token = back < n ? history[n - 1 - back] : toy::pad;
  return (back * vocabulary + static_cast<std::size_t>(token)) * vocabulary;
}

ToyPolicy::Logits ToyPolicy::logits(std::span<const std::int32_t> history) const {
  Logits sum{};
  for (std::size_t back = 0; back < window; ++back) {
    const std::size_t at = row(history, back);
    for (std::size_t v = 0; v < vocabulary; ++v) sum[v] += weights_[at + v];
  }
  return sum;
}

void ToyPolicy::accumulate(std::span<const std::int32_t> history, const Logits& gradient) {
  for (std::size_t back = 0; back < window; ++back) {
    const std::size_t at = row(history, back);
    for (std::size_t v = 0; v < vocabulary; ++v) gradient_[at + v] += gradient[v];
  }
}

void ToyPolicy::step(double rate) {
  ++steps_;
  const double a = 1 - std::pow(0.9, steps_), b = 1 - std::pow(0.99, steps_);
  for (std::size_t i = 0; i < size; ++i) {
    const double g = double{gradient_[i]};
    first_[i] += 0.1 * (g - first_[i]);
    second_[i] += 0.01 * (g * g - second_[i]);
    weights_[i] += static_cast<float>(rate * first_[i] / a / (std::sqrt(second_[i] / b) + 1e-6));
    gradient_[i] = 0;
  }
}

}  // namespace rose::rlhf
