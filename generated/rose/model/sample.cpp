// Choose the next token.

#include "rose/model/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/elementary.h"

namespace rose::model {

// Refuse settings that mean nothing.
void validate(const Sampling& s) {
  const auto require = [](bool holds, const char* field, std::string message) {
    if (!holds) throw core::Error(core::Code::invalid_argument, std::move(message)).in(field);
  };
  require(s.temperature >= 0.0f && std::isfinite(s.temperature), "temperature",
          fmt::format("a temperature of {} is not at least 0", s.temperature));
  require(s.top_k >= 0, "top_k", fmt::format("{} is not at least 0; 0 keeps every token", s.top_k));
  require(s.top_p > 0.0f && s.top_p <= 1.0f, "top_p",
          fmt::format("{} is not in (0, 1]; 1 keeps every token", s.top_p));
  require(s.min_p >= 0.0f && s.min_p <= 1.0f, "min_p",
          fmt::format("{} is not in [0, 1]; 0 keeps every token", s.min_p));
}

// Find the largest logit, the lowest id first.
namespace {

std::size_t most_likely(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]))
      throw core::Error(core::Code::internal,
                        fmt::format("the logit of token {} is not a number", i));
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

}  // namespace

// Weigh, cut, and let one random number decide.
std::int32_t Sampler::choose(std::span<const float> logits, const Sampling& sampling,
                             std::int64_t position) {
  if (logits.empty())
    throw core::Error(core::Code::invalid_argument, "there is no token to choose").in("logits");
  const std::size_t best = most_likely(logits);
  if (sampling.temperature == 0.0f) return static_cast<std::int32_t>(best);

  candidates_.resize(logits.size());
  double total = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float weight =
        kernels::exp((logits[i] - logits[best]) / sampling.temperature);  // 1 for the most likely
    candidates_[i] = {weight, static_cast<std::int32_t>(i)};
    total += double{weight};
  }
  auto kept = std::span(candidates_);
  if (sampling.top_k > 0 || sampling.top_p < 1.0f) kept = most_likely_first(sampling, total);
  const double threshold = double{sampling.min_p};
  double mass = 0.0;
  for (const auto& [weight, id] : kept) mass += double{weight} >= threshold ? double{weight} : 0.0;

  core::Rng rng(sampling.seed, static_cast<std::uint64_t>(position));
  double left = rng.uniform64() * mass;
  std::int32_t chosen = static_cast<std::int32_t>(best);
  for (const auto& [weight, id] : kept) {
    if (double{weight} < threshold || weight == 0.0f) continue;
    chosen = id;  // the last one also takes what rounding leaves
    left -= double{weight};
    if (left < 0.0) break;
  }
  return chosen;
}

std::span<std::pair<float, std::int32_t>> Sampler::most_likely_first(const Sampling& sampling,
                                                                     double total) {
  const auto after = [](const auto& a, const auto& b) {  // b comes first: heavier, then lower id
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  };
  std::size_t limit = candidates_.size();
  if (sampling.top_k > 0) limit = std::min(limit, static_cast<std::size_t>(sampling.top_k));
  std::make_heap(candidates_.begin(), candidates_.end(), after);
  std::size_t kept = 0;
  double mass = 0.0;
  const auto pop = [&] {  // the heap's top moves to the end of the shrinking heap
    std::pop_heap(candidates_.begin(), candidates_.end() - static_cast<std::ptrdiff_t>(kept),
                  after);
    ++kept;
    return double{candidates_[candidates_.size() - kept].first};
  };
  if (sampling.top_k > 0) {
    total = 0.0;
    while (kept < limit) total += pop();
  }
  std::reverse(candidates_.end() - static_cast<std::ptrdiff_t>(kept), candidates_.end());
  if (sampling.top_p == 1.0f) return std::span(candidates_).last(kept);
  // Cut where the mass is reached.
  const double wanted = double{sampling.top_p} * total;
  if (sampling.top_k > 0) {
    const auto sorted = std::span(candidates_).last(kept);
    std::size_t n = 0;
    while (n < sorted.size() && (n == 0 || mass < wanted)) mass += double{sorted[n++].first};
    return sorted.first(n);
  }
  while (kept < limit && (kept == 0 || mass < wanted)) mass += pop();
  std::reverse(candidates_.end() - static_cast<std::ptrdiff_t>(kept), candidates_.end());
  return std::span(candidates_).last(kept);
}

}  // namespace rose::model
