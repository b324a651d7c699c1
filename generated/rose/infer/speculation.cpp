// Keep what a model would have said itself.

#include "rose/infer/speculation.h"

#include <algorithm>
#include <cmath>

namespace rose::infer {

// Accept, or draw from what is missing.
namespace {

std::int32_t draw(std::span<const double> weights, core::Rng& rng) {
  double total = 0.0;
  for (const double w : weights) total += w;
  double left = rng.uniform64() * total;
  std::int32_t last = -1;
  for (std::size_t v = 0; v < weights.size(); ++v) {
    if (weights[v] <= 0.0) continue;
    last = static_cast<std::int32_t>(v);
    left -= weights[v];
    if (left < 0.0) break;
  }
  return last;
}

}  // namespace

Verified verify_by_rejection(std::span<const std::int32_t> drafts,
                             std::span<const std::vector<double>> target,
                             std::span<const std::vector<double>> draft, core::Rng& rng) {
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    const auto x = static_cast<std::size_t>(drafts[i]);
    const std::vector<double>&p = target[i], &q = draft[i];
    if (rng.uniform64() * q[x] < p[x]) continue;
    std::vector<double> rest(p.size());
    for (std::size_t v = 0; v < p.size(); ++v) rest[v] = std::max(p[v] - q[v], 0.0);
    return {i, draw(rest, rng)};
  }
  return {drafts.size(), draw(target[drafts.size()], rng)};
}

// Compare drafts with draws.
std::size_t agreeing(std::span<const std::int32_t> drafts, std::span<const std::int32_t> drawn) {
  const auto end = std::ranges::mismatch(drafts, drawn).in1;
  return static_cast<std::size_t>(end - drafts.begin());
}

double agreement(std::span<const double> p, std::span<const double> q) {
  double total = 0.0;
  for (std::size_t v = 0; v < p.size(); ++v) {
    if (p[v] <= 0.0 || q[v] <= 0.0) continue;
    double sum = 0.0;
    for (std::size_t u = 0; u < p.size(); ++u) sum += std::max(p[u] / p[v], q[u] / q[v]);
    total += 1.0 / sum;
  }
  return total;
}

// Draft with a smaller model and the same noise.
void ModelDrafter::draft(std::span<const std::int32_t> tokens, int most,
                         std::vector<std::int32_t>& out) {
  out.clear();
  text_.assign(tokens.begin(), tokens.end());
  for (int i = 0; i < most; ++i) {
    params_.position = text_.size();
    const kernels::Choice choice = kernels::sample(next_(text_), params_, scratch_);
    if (choice.token < 0) break;
    out.push_back(choice.token);
    text_.push_back(choice.token);
  }
}

// Count what was kept, and choose how many to draft.
double tokens_per_pass(double alpha, int drafts) {
  double total = 0.0, power = 1.0;
  for (int i = 0; i <= drafts; ++i, power *= alpha) total += power;
  return total;
}

int best_drafts(double alpha, double row, double draft, int most) {
  int best = 0;
  double fastest = 1.0;
  for (int k = 1; k <= most; ++k) {
    const double rate = tokens_per_pass(alpha, k) / (1.0 + k * (row + draft));
    if (rate > fastest) fastest = rate, best = k;
  }
  return best;
}

void Acceptance::add(std::size_t drafts, std::size_t kept_drafts) {
  ++passes;
  drafted += static_cast<std::int64_t>(drafts);
  kept += static_cast<std::int64_t>(kept_drafts);
  constexpr double fade = 0.9;
  for (std::size_t i = 0; i < drafts && i <= kept_drafts; ++i)
    recent = fade * recent + (1.0 - fade) * (i < kept_drafts ? 1.0 : 0.0);
}

double Acceptance::rate() const {
  return drafted == 0 ? 0.0 : static_cast<double>(kept) / static_cast<double>(drafted);
}

double Acceptance::tokens_per_pass() const {
  return passes == 0 ? 0.0 : 1.0 + static_cast<double>(kept) / static_cast<double>(passes);
}

}  // namespace rose::infer
