// Read one row of logits as a request asks.

#include "rose/infer/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rose/kernels/elementary.h"
#include "rose/kernels/logprob.h"

namespace rose::infer {

namespace {

using Candidate = std::pair<float, std::int32_t>;

bool comes_first(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

// Keep the likeliest in order.
void likeliest(std::span<const float> logits, int count, std::vector<Candidate>& top) {
  top.clear();
  const auto most = std::min(static_cast<std::size_t>(std::max(count, 0)), logits.size());
  for (std::size_t v = 0; most > 0 && v < logits.size(); ++v) {
    const Candidate c{logits[v], static_cast<std::int32_t>(v)};
    if (top.size() == most && !comes_first(c, top.back())) continue;
    if (top.size() == most) top.pop_back();
    top.insert(std::ranges::upper_bound(top, c, comes_first), c);
  }
}

// Tell which of the likeliest the cuts kept.
void processed_top(std::span<const float> logits, const kernels::SamplingParams& p,
                   const kernels::Choice& choice, ChooseScratch& s) {
  if (p.temperature == 0.0f) {
    for (const Candidate& c : s.top)
      s.logprobs.push_back(c.second == choice.token ? 0.0f
                                                    : -std::numeric_limits<float>::infinity());
    return;
  }
  const float highest = s.top.front().first;
  const float chosen = logits[static_cast<std::size_t>(choice.token)];
  const auto weight = [&](float z) { return kernels::exp((z - highest) / p.temperature); };
  const auto mass = [&](float z) { return static_cast<std::uint64_t>(weight(z) * 0x1p32f); };
  std::uint64_t all = 0, reached = 0;
  if (p.top_p < 1.0f) {
    s.candidates.clear();
    for (std::size_t v = 0; v < logits.size(); ++v)
      s.candidates.emplace_back(logits[v], static_cast<std::int32_t>(v));
    const auto k = p.top_k > 0 ? static_cast<std::size_t>(p.top_k) : logits.size();
    if (k < s.candidates.size()) {
      std::ranges::nth_element(s.candidates, s.candidates.begin() + static_cast<std::ptrdiff_t>(k),
                               comes_first);
      s.candidates.resize(k);
    }
    for (const Candidate& c : s.candidates) all += mass(c.first);
  }
  const auto wanted =
      static_cast<std::uint64_t>(std::ceil(double{p.top_p} * static_cast<double>(all)));
  for (std::size_t rank = 0; rank < s.top.size(); ++rank) {
    const float z = s.top[rank].first;
    const bool in_k = p.top_k == 0 || rank < static_cast<std::size_t>(p.top_k);
    const bool in_p = p.top_p == 1.0f || rank == 0 || reached < wanted;
    const bool kept =
        in_k && in_p && z > -std::numeric_limits<float>::infinity() && weight(z) >= p.min_p;
    s.logprobs.push_back(kept ? (z - chosen) / p.temperature + choice.logprob
                              : -std::numeric_limits<float>::infinity());
    if (p.top_p < 1.0f) reached += mass(z);
  }
}

}  // namespace

// Report the model's view, adjust, draw.
RowChoice choose(std::span<float> logits, const RowSampling& row, ChooseScratch& s,
                 core::ThreadPool& pool) {
  const bool drawn = row.given < 0;
  const bool raw = row.logprobs >= 0 && !(row.processed && drawn);
  RowChoice result;
  float lse = 0.0f;
  s.top.clear();
  s.ids.clear();
  s.logprobs.clear();
  if (raw) {
    const std::int32_t target = std::max(row.given, 0);
    kernels::token_logprob(logits, 1, {&target, 1}, {&result.logprob, 1}, {&lse, 1}, pool);
    if (std::isnan(lse)) return {};
    likeliest(logits, row.logprobs, s.top);
    for (const Candidate& c : s.top) s.logprobs.push_back(c.first - lse);
  }
  result.token = row.given;
  if (drawn) {
    if (raw) s.model.assign(logits.begin(), logits.end());
    kernels::adjust_logits(logits, row.adjust);
    const kernels::Choice choice = kernels::sample(logits, row.params, s.candidates);
    if (choice.token < 0) return {};
    result.token = choice.token;
    result.logprob = raw ? s.model[static_cast<std::size_t>(choice.token)] - lse : choice.logprob;
    if (!raw && row.logprobs > 0) {
      likeliest(logits, row.logprobs, s.top);
      processed_top(logits, row.params, choice, s);
    }
  }
  for (const Candidate& c : s.top) s.ids.push_back(c.second);
  result.top_ids = s.ids;
  result.top_logprobs = s.logprobs;
  return result;
}

}  // namespace rose::infer
