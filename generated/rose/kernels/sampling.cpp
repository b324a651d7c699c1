// Choose on the CPU.

#include "rose/kernels/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/kernels/elementary.h"

namespace rose::kernels {

void validate(const SamplingParams& p) {
  const auto require = [](bool holds, const char* field, const std::string& message) {
    if (!holds) throw core::Error(core::Code::invalid_argument, message).in(field);
  };
  require(p.temperature >= 0.0f && std::isfinite(p.temperature), "temperature",
          fmt::format("a temperature of {} is not at least 0", p.temperature));
  require(p.top_k >= 0, "top_k", fmt::format("{} is not at least 0; 0 keeps every token", p.top_k));
  require(p.top_p > 0.0f && p.top_p <= 1.0f, "top_p",
          fmt::format("{} is not in (0, 1]; 1 keeps every token", p.top_p));
  require(p.min_p >= 0.0f && p.min_p <= 1.0f, "min_p",
          fmt::format("{} is not in [0, 1]; 0 keeps every token", p.min_p));
}

// Bias, mask and penalties.
void adjust_logits(std::span<float> logits, const LogitAdjustment& a) {
  const auto inside = [&](std::int32_t id) {
    return id >= 0 && static_cast<std::size_t>(id) < logits.size();
  };
  for (const auto& [id, value] : a.bias) {
    if (inside(id)) logits[static_cast<std::size_t>(id)] += value;
  }
  for (std::size_t v = 0; !a.mask.empty() && v < logits.size(); ++v) {
    const bool allowed = v / 32 < a.mask.size() && (a.mask[v / 32] >> v % 32 & 1) != 0;
    if (!allowed) logits[v] = -std::numeric_limits<float>::infinity();
  }
  for (const auto& [id, count] : a.context) {
    if (!inside(id)) continue;
    float& z = logits[static_cast<std::size_t>(id)];
    z = z > 0.0f ? z / a.repetition : z * a.repetition;
    if (count > 0) z = z - a.frequency * static_cast<float>(count) - a.presence;
  }
}

// The same noise for the same seed, position and token.
float gumbel_noise(std::uint64_t seed, std::uint64_t position, std::int32_t token) {
  core::Rng rng(seed, position, static_cast<std::uint64_t>(token));
  const float u = (static_cast<float>(rng.next() >> 9) + 0.5f) * 0x1p-23f;
  return -std::log(-std::log(u));
}

// Keep the beginning of the order.
namespace {

using Candidate = std::pair<float, std::int32_t>;  // logit, id

std::uint64_t mass_of(float logit, float highest, float temperature) {
  return static_cast<std::uint64_t>(exp((logit - highest) / temperature) * 0x1p32f);
}

/// The shortest beginning of the order that top-k and top-p keep, most likely first.
std::span<Candidate> beginning(std::span<Candidate> all, const SamplingParams& p, float highest) {
  const auto after = [](const Candidate& a, const Candidate& b) {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  };
  std::make_heap(all.begin(), all.end(), after);
  const auto limit =
      p.top_k > 0 ? std::min(all.size(), static_cast<std::size_t>(p.top_k)) : all.size();
  const auto mass = [&](const Candidate& c) { return mass_of(c.first, highest, p.temperature); };
  std::size_t kept = 0;
  const auto pop = [&] {
    std::pop_heap(all.begin(), all.end() - static_cast<std::ptrdiff_t>(kept++), after);
  };
  std::uint64_t total = 0, reached = 0;
  if (p.top_k > 0) {
    while (kept < limit) pop();
    for (const Candidate& c : all.last(kept)) total += mass(c);
  } else {
    for (const Candidate& c : all) total += mass(c);
  }
  const auto wanted =
      static_cast<std::uint64_t>(std::ceil(double{p.top_p} * static_cast<double>(total)));
  std::size_t n = 0;
  while (p.top_p < 1.0f && n < limit && (n == 0 || reached < wanted)) {
    if (n == kept) pop();
    reached += mass(all[all.size() - ++n]);
  }
  const auto taken = all.last(kept);
  std::reverse(taken.begin(), taken.end());
  return taken.first(p.top_p < 1.0f ? n : kept);
}

}  // namespace

// Let the noise decide.
Choice sample(std::span<const float> logits, const SamplingParams& p,
              std::vector<Candidate>& scratch) {
  float highest = -std::numeric_limits<float>::infinity();
  std::size_t best = 0;
  for (std::size_t v = 0; v < logits.size(); ++v) {
    if (std::isnan(logits[v])) return {};
    if (logits[v] > highest) highest = logits[v], best = v;
  }
  if (highest == -std::numeric_limits<float>::infinity()) return {};
  if (p.temperature == 0.0f || std::isinf(highest)) return {static_cast<std::int32_t>(best), 0.0f};
  scratch.clear();
  for (std::size_t v = 0; v < logits.size(); ++v)
    scratch.emplace_back(logits[v], static_cast<std::int32_t>(v));
  std::span<Candidate> kept(scratch);
  if (p.top_k > 0 || p.top_p < 1.0f) kept = beginning(kept, p, highest);
  Choice choice{static_cast<std::int32_t>(best), 0.0f};
  float top = -std::numeric_limits<float>::infinity(), chosen = 0.0f;
  std::uint64_t mass = 0;
  constexpr float hopeless = -19.5f;
  for (const auto& [logit, id] : kept) {
    const float score = (logit - highest) / p.temperature;
    if (exp(score) < p.min_p) continue;
    mass += mass_of(logit, highest, p.temperature);
    if (score < hopeless) continue;
    const float noisy = score + gumbel_noise(p.seed, p.position, id);
    if (noisy > top || (noisy == top && id < choice.token)) {
      top = noisy, chosen = score, choice.token = id;
    }
  }
  choice.logprob = chosen - static_cast<float>(std::log(static_cast<double>(mass) * 0x1p-32));
  return choice;
}

// List the largest logits.
void top_logprobs(std::span<const float> logits, float lse, std::span<std::int32_t> ids,
                  std::span<float> logprobs) {
  std::fill(ids.begin(), ids.end(), -1);
  std::fill(logprobs.begin(), logprobs.end(), -std::numeric_limits<float>::infinity());
  if (std::any_of(logits.begin(), logits.end(), [](float z) { return std::isnan(z); })) return;
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  const std::size_t kept = std::min(ids.size(), order.size());
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
      [&](std::int32_t a, std::int32_t b) { return at(a) != at(b) ? at(a) > at(b) : a < b; });
  for (std::size_t i = 0; i < kept; ++i) {
    ids[i] = order[i];
    logprobs[i] = at(order[i]) - lse;
  }
}

}  // namespace rose::kernels
