// AdamW, written out.

#include "rose/trainer/adamw.h"

#include <algorithm>
#include <cmath>

namespace rose::trainer {

AdamWElement adamw_element(AdamWElement s, float gradient, const AdamWOptions& options, float decay,
                           float rate, float correction1, float correction2) {
  s.first = options.beta1 * s.first + (1.0f - options.beta1) * gradient;
  s.second = options.beta2 * s.second + (1.0f - options.beta2) * gradient * gradient;
  const float direction =
      (s.first * correction1) / (std::sqrt(s.second * correction2) + options.epsilon);
  s.weight -= rate * (direction + decay * s.weight);
  return s;
}

AdamW::AdamW(const model::WeightSet& weights, AdamWOptions options) : options_(options) {
  first_.assign(static_cast<std::size_t>(weights.parameter_count()), 0.0f);
  second_ = first_;
}

void AdamW::step(const model::WeightSet& weights, const model::Gradients& gradients, float rate,
                 float scale, core::ThreadPool& pool) {
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const auto correction1 =
      static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(options_.beta1), t)));
  const auto correction2 =
      static_cast<float>(1.0 / (1.0 - std::pow(static_cast<double>(options_.beta2), t)));
  std::size_t offset = 0;
  for (std::size_t p = 0; p < weights.parameters().size(); ++p) {
    const model::Parameter& parameter = weights.parameters()[p];
    float* const w = parameter.f32().data();
    const float* const g = gradients.parameter(p).data();
    float* const m = first_.data() + offset;
    float* const v = second_.data() + offset;
    const float decay = parameter.shape.size() > 1 ? options_.weight_decay : 0.0f;
    pool.for_range(parameter.elements, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const AdamWElement next = adamw_element({w[i], m[i], v[i]}, g[i] * scale, options_, decay,
                                                rate, correction1, correction2);
        w[i] = next.weight, m[i] = next.first, v[i] = next.second;
      }
    });
    offset += static_cast<std::size_t>(parameter.elements);
  }
}

// Measure the gradient's length in an order that threads cannot disturb.
double global_norm(std::span<const float> all, const model::WeightSet& weights,
                   core::ThreadPool& pool) {
  constexpr std::int64_t kBlock = 1024;
  struct Block {
    std::int64_t begin, end;
  };
  std::vector<Block> blocks;
  std::int64_t offset = 0;
  for (const model::Parameter& parameter : weights.parameters()) {
    for (std::int64_t i = 0; i < parameter.elements; i += kBlock) {
      blocks.push_back({offset + i, offset + std::min(i + kBlock, parameter.elements)});
    }
    offset += parameter.elements;
  }
  std::vector<double> sums(blocks.size());
  pool.for_range(
      static_cast<std::int64_t>(blocks.size()), 16, [&](std::int64_t begin, std::int64_t end) {
        for (auto b = static_cast<std::size_t>(begin); b < static_cast<std::size_t>(end); ++b) {
          for (std::int64_t i = blocks[b].begin; i < blocks[b].end; ++i) {
            const double g = all[static_cast<std::size_t>(i)];
            sums[b] += g * g;
          }
        }
      });
  for (std::size_t stride = 1; stride < sums.size(); stride *= 2) {
    for (std::size_t i = 0; i + stride < sums.size(); i += 2 * stride) sums[i] += sums[i + stride];
  }
  return sums.empty() ? 0.0 : std::sqrt(sums[0]);
}

}  // namespace rose::trainer
