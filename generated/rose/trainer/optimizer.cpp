// Make the rules, and follow them.

#include "rose/trainer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "rose/core/error.h"

namespace rose::trainer {

// Tell the kind of a parameter from its name.
ParameterKind kind_of(std::string_view name) {
  if (name.ends_with(".bias") && name.find("norm") == std::string_view::npos)
    return ParameterKind::bias;
  if (name.find("norm") != std::string_view::npos) return ParameterKind::norm;
  const bool table = name == "embed.weight" || name == "pos_embed.weight" || name == "head.weight";
  return table ? ParameterKind::embedding : ParameterKind::matrix;
}

// One rule for each parameter.
namespace {

void check_options(const OptimizerOptions& o) {
  const auto need = [](bool fine, const char* name, double value, const char* range) {
    if (fine) return;
    throw core::Error(core::Code::invalid_argument, fmt::format("{} is {}", name, value))
        .in(fmt::format("optimizer.{}", name))
        .hint(fmt::format("it must be {}", range));
  };
  need(o.beta1 >= 0 && o.beta1 < 1, "beta1", o.beta1, "at least 0 and below 1");
  need(o.beta2 >= 0 && o.beta2 < 1, "beta2", o.beta2, "at least 0 and below 1");
  need(o.epsilon > 0, "epsilon", o.epsilon, "above 0");
  need(o.weight_decay >= 0, "weight_decay", o.weight_decay, "at least 0");
  need(o.muon_momentum >= 0 && o.muon_momentum < 1, "muon_momentum", o.muon_momentum,
       "at least 0 and below 1");
  need(o.muon_iterations > 0, "muon_iterations", o.muon_iterations, "at least 1");
}

}  // namespace

std::vector<ParameterRule> parameter_rules(std::span<const model::Parameter> parameters,
                                           const OptimizerOptions& options) {
  check_options(options);
  std::vector<ParameterRule> rules;
  for (const model::Parameter& parameter : parameters) {
    const ParameterKind kind = kind_of(parameter.name);
    ParameterRule rule;
    rule.trained = std::ranges::none_of(options.frozen, [&](const std::string& prefix) {
      return parameter.name.starts_with(prefix);
    });
    rule.cols = parameter.shape.back();
    rule.rows = parameter.elements / std::max<std::int64_t>(1, rule.cols);
    const bool decays = kind == ParameterKind::matrix ||
                        (kind == ParameterKind::embedding && options.decay_embeddings) ||
                        (kind == ParameterKind::norm && options.decay_norms) ||
                        (kind == ParameterKind::bias && options.decay_biases);
    rule.decay = decays ? options.weight_decay : 0.0f;
    if (kind == ParameterKind::embedding) rule.rate = options.embedding_rate;
    if (kind == ParameterKind::matrix && options.method == Method::muon) {
      rule.method = Method::muon;
      rule.rate = options.muon_rate;
      rule.muon_scale = kernels::muon_scale(options.muon_scale, rule.rows, rule.cols);
    }
    rules.push_back(rule);
  }
  return rules;
}

// The constants of one update.
kernels::AdamWStep adamw_step(const OptimizerOptions& options, const ParameterRule& rule,
                              std::int64_t t, double rate) {
  return kernels::at_step({.beta1 = options.beta1,
                           .beta2 = options.beta2,
                           .epsilon = options.epsilon,
                           .decay = rule.decay,
                           .rate = static_cast<float>(rate * rule.rate)},
                          t);
}

kernels::MuonStep muon_step(const OptimizerOptions& options, const ParameterRule& rule,
                            double rate) {
  kernels::MuonStep step;
  step.momentum = options.muon_momentum;
  step.nesterov = options.muon_nesterov;
  step.iterations = options.muon_iterations;
  step.decay = rule.decay;
  step.scale = rule.muon_scale;
  step.rate = static_cast<float>(rate * rule.rate);
  return step;
}

// Update one parameter after the other.
HostOptimizer::HostOptimizer(const model::WeightSet& weights, OptimizerOptions options)
    : options_(std::move(options)), rules_(parameter_rules(weights.parameters(), options_)) {
  moments_.resize(rules_.size());
  for (std::size_t p = 0; p < rules_.size(); ++p) {
    if (!rules_[p].trained) continue;
    const auto n = static_cast<std::size_t>(weights.parameters()[p].elements);
    moments_[p].first.assign(n, 0.0f);
    if (rules_[p].method == Method::adamw) moments_[p].second.assign(n, 0.0f);
  }
}

void HostOptimizer::step(const model::WeightSet& weights, const model::Gradients& gradients,
                         std::int64_t t, double rate, float scale, core::ThreadPool& pool) {
  for (std::size_t p = 0; p < rules_.size(); ++p) {
    const ParameterRule& rule = rules_[p];
    if (!rule.trained) continue;
    const std::span<float> weight = weights.parameters()[p].f32();
    if (rule.method == Method::adamw) {
      kernels::adamw(weight, gradients.parameter(p), scale, first(p), second(p),
                     adamw_step(options_, rule, t, rate), pool);
    } else {
      kernels::muon(weight, gradients.parameter(p), scale, first(p), rule.rows, rule.cols,
                    muon_step(options_, rule, rate), pool, scratch_);
    }
  }
}

}  // namespace rose::trainer
