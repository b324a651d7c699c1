// One row, in place.

#include "rose/rlhf/policy_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "rose/core/error.h"

namespace rose::rlhf {

namespace {

// The sums of a row.
void check(std::size_t vocabulary, const Draw& draw) {
  const auto inside = [&](std::int32_t id) {
    return id >= 0 && static_cast<std::size_t>(id) < vocabulary;
  };
  std::string wrong;
  if (!inside(draw.token)) wrong = fmt::format("token {} of {}", draw.token, vocabulary);
  if (!(draw.temperature > 0)) wrong = fmt::format("temperature {}", draw.temperature);
  if (!std::ranges::all_of(draw.support, inside)) wrong = "a support beyond the vocabulary";
  if (!draw.support.empty() && std::ranges::find(draw.support, draw.token) == draw.support.end())
    wrong = fmt::format("token {} is not in its support", draw.token);
  if (!wrong.empty()) throw core::Error(core::Code::invalid_argument, wrong).in("draw");
}

template <class F>
void for_allowed(std::span<const float> logits, const Draw& draw, F&& f) {
  if (draw.support.empty())
    for (const float z : logits) f(double{z} / draw.temperature);
  else
    for (const std::int32_t v : draw.support)
      f(double{logits[static_cast<std::size_t>(v)]} / draw.temperature);
}

std::pair<RowScore, double> score(std::span<const float> logits, const Draw& draw) {
  double most = -std::numeric_limits<double>::infinity(), sum = 0, mean = 0;
  for_allowed(logits, draw, [&](double z) { most = std::max(most, z); });
  for_allowed(logits, draw, [&](double z) {
    const double e = std::exp(z - most);
    sum += e;
    mean += e * (z - most);
  });
  const double lse = most + std::log(sum);
  const double chosen =
      double{logits[static_cast<std::size_t>(draw.token)]} / draw.temperature - lse;
  return {{std::min(chosen, 0.0), std::log(sum) - mean / sum}, lse};
}

}  // namespace

RowScore score_row(std::span<const float> logits, const Draw& draw) {
  check(logits.size(), draw);
  return score(logits, draw).first;
}

RowScore differentiate_row(std::span<float> logits, const Draw& draw, double weight,
                           double entropy_weight) {
  check(logits.size(), draw);
  const auto [row, lse] = score(logits, draw);
  std::vector<float> before;
  if (!draw.support.empty()) before.assign(logits.begin(), logits.end());
  const auto gradient = [&](std::size_t v, float logit) {
    const double logp = double{logit} / draw.temperature - lse, p = std::exp(logp);
    const bool drawn = v == static_cast<std::size_t>(draw.token);
    const double slope = weight * ((drawn ? 1 : 0) - p) - entropy_weight * p * (logp + row.entropy);
    return static_cast<float>(slope / draw.temperature);
  };
  if (draw.support.empty()) {
    for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = gradient(v, logits[v]);
    return row;
  }
  std::ranges::fill(logits, 0.0f);
  for (const std::int32_t id : draw.support) {
    const auto v = static_cast<std::size_t>(id);
    logits[v] = gradient(v, before[v]);
  }
  return row;
}

}  // namespace rose::rlhf
