// Value and derivative, token by token.

#include "rose/rlhf/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "rose/core/error.h"

namespace rose::rlhf {

namespace {

// Refuse what cannot be computed.
[[noreturn]] void refuse(const char* argument, std::string message) {
  throw core::Error(core::Code::invalid_argument, std::move(message)).in(argument);
}

void need(const PolicyBatch& batch, const char* name, std::span<const double> column) {
  if (column.empty())
    refuse(name, "this objective needs these log-probabilities, and the batch has none");
  if (column.size() != batch.mask.size())
    refuse(name, fmt::format("{} entries for {} tokens", column.size(), batch.mask.size()));
  for (std::size_t i = 0; i < column.size(); ++i)
    if (batch.mask[i] != 0 && !std::isfinite(column[i]))
      refuse(name, fmt::format("token {} has {}", i, column[i]));
}

bool needs_old(const Objective& o) {
  return o.ratio == Ratio::token || o.ratio == Ratio::sequence ||
         o.ratio == Ratio::sequence_token || o.correction != Correction::none;
}

void check(const Objective& o, const PolicyBatch& batch) {
  need(batch, "current", batch.current);
  need(batch, "advantage", batch.advantage);
  if (needs_old(o)) need(batch, "old", batch.old);
  if (o.ratio == Ratio::direct || o.correction != Correction::none)
    need(batch, "behaviour", batch.behaviour);
  if (o.kl != 0) need(batch, "reference", batch.reference);
  if (batch.starts.size() < 2 || batch.starts.front() != 0 ||
      batch.starts.back() != batch.mask.size() || !std::ranges::is_sorted(batch.starts))
    refuse("starts", "sequences do not cover the tokens in order");
  if (std::ranges::count(batch.mask, std::uint8_t{0}) == std::ssize(batch.mask))
    refuse("mask", "it selects nothing");
  if (o.average == Average::constant && !(o.length > 0))
    refuse("length", "the constant average needs a positive budget of tokens");
  if (o.ratio == Ratio::direct && o.correction != Correction::none)
    refuse("correction", "a direct ratio already contains it: it would count twice");
  if ((o.gate == Gate::sigmoid) && !(o.low > 0 && o.high > 0))
    refuse("low", "the sigmoid's temperatures are positive");
}

// The term of a token, and its derivative.
struct Term {
  double value = 0, slope = 0;  // slope: derivative in the token's log-probability
  bool accepted = true;
};

Term clipped(const Objective& o, double r, double a) {
  const double bounded = std::clamp(r, 1 - o.low, 1 + o.high) * a;
  Term term = r * a <= bounded ? Term{r * a, r * a} : Term{bounded, 0};
  if (o.dual > 0 && a < 0 && term.value < o.dual * a) term = {o.dual * a, 0};
  return term;
}

Term sigmoid(const Objective& o, double r, double a) {
  const double tau = a > 0 ? o.low : o.high, p = 1 / (1 + std::exp(-tau * (r - 1)));
  return {4 / tau * p * a, 4 * p * (1 - p) * r * a};
}

// A detached weight on the log-probability: the policy gradient's own form.
Term weighted(double weight, double a, double logprob) {
  return {weight * a * logprob, weight * a};
}

Term rejected(const Objective& o, double r, double a, double logprob) {
  if (!(1 - o.low < r && r < 1 + o.high)) return {0, 0, false};
  Term term = weighted(r, a, logprob);
  if (o.attached) term.slope *= 1 + logprob;
  return term;
}

// `moved`: by how much the token's probability has changed since it was drawn.
Term diverged(const Objective& o, double r, double a, double logprob, double moved) {
  if (a * moved > 0 && std::fabs(moved) > o.low) return {0, 0, false};
  return weighted(std::min(r, o.high), a, logprob);
}

Term term_of(const Objective& o, double r, double a, double logprob, double moved) {
  if (o.ratio == Ratio::none) return weighted(1, a, logprob);
  switch (o.gate) {
    case Gate::none: return {r * a, r * a};
    case Gate::clip: return clipped(o, r, a);
    case Gate::weight: return weighted(std::clamp(r, 1 - o.low, 1 + o.high), a, logprob);
    case Gate::reject: return rejected(o, r, a, logprob);
    case Gate::sigmoid: return sigmoid(o, r, a);
    case Gate::cap: return r < o.high ? Term{r * a, r * a} : Term{o.high * a, 0};
    case Gate::divergence: return diverged(o, r, a, logprob, moved);
    case Gate::positive: return a > 0 ? Term{a, a} : clipped(o, r, a);
  }
  refuse("gate", "it is not one of the gates");
}

double correction_of(const Objective& o, double k, bool& cut) {
  if (o.correction == Correction::none || o.correction == Correction::full)
    return o.correction == Correction::none ? 1 : k;
  if (o.correction == Correction::truncate) {
    cut = k > o.correction_high;
    return std::min(k, o.correction_high);
  }
  cut = !(o.correction_low <= k && k <= o.correction_high);
  return cut ? 0 : k;
}

// With d = log(current / reference): the estimate and its derivative.
Term kl_term(KlEstimator estimator, double d) {
  const double k3 = std::exp(-d) - 1 + d;
  if (estimator == KlEstimator::k1) return {d, 1};
  if (estimator == KlEstimator::k2) return {d * d / 2, d};
  return {k3, estimator == KlEstimator::k3 ? 1 - std::exp(-d) : d};
}

// One sequence: ratios, terms, and the coupling.
struct Row {
  double value = 0, tokens = 0, accepted = 0, kl = 0;
};

double sequence_ratio(const PolicyBatch& b, std::size_t begin, std::size_t end, double tokens) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i)
    if (b.mask[i] != 0) sum += b.current[i] - b.old[i];
  return std::exp(sum / tokens);
}

double moved_since(const Objective& o, const PolicyBatch& b, std::size_t i) {
  if (o.gate != Gate::divergence) return 0;
  const double before = o.ratio == Ratio::direct ? b.behaviour[i] : b.old[i];
  return std::exp(b.current[i]) - std::exp(before);
}

double ratio_of(const Objective& o, const PolicyBatch& b, std::size_t i, double whole) {
  switch (o.ratio) {
    case Ratio::none: return 1;
    case Ratio::token: return std::exp(b.current[i] - b.old[i]);
    case Ratio::direct: return std::exp(b.current[i] - b.behaviour[i]);
    case Ratio::sequence:
    case Ratio::sequence_token: return whole;
  }
  return 1;
}

void note(Diagnostics& seen, double r, double a, const Term& term, bool cut) {
  seen.ratio_mean += r;
  seen.effective += r * r;
  seen.ratio_max = std::max(seen.ratio_max, r);
  seen.ratio_min = std::min(seen.ratio_min, r);
  if (term.slope == 0 && a > 0) ++seen.clipped_up;
  if (term.slope == 0 && a < 0) ++seen.clipped_down;
  if (cut) ++seen.corrected;
}

Row one_sequence(const Objective& o, const PolicyBatch& b, std::size_t begin, std::size_t end,
                 std::span<double> slopes, Diagnostics& seen) {
  Row row;
  for (std::size_t i = begin; i < end; ++i) row.tokens += b.mask[i] != 0 ? 1 : 0;
  if (row.tokens == 0) return row;
  const bool whole = o.ratio == Ratio::sequence || o.ratio == Ratio::sequence_token;
  const double s = whole ? sequence_ratio(b, begin, end, row.tokens) : 1;
  double coupled = 0;
  for (std::size_t i = begin; i < end; ++i) {
    if (b.mask[i] == 0) continue;
    const double r = ratio_of(o, b, i, s);
    Term term = term_of(o, r, b.advantage[i], b.current[i], moved_since(o, b, i));
    bool cut = false;
    if (o.correction != Correction::none) {
      const double gap = b.old[i] - b.behaviour[i], k = correction_of(o, std::exp(gap), cut);
      seen.mismatch = std::max(seen.mismatch, std::fabs(gap));
      term = {term.value * k, term.slope * k, term.accepted && k != 0};
    }
    note(seen, r, b.advantage[i], term, cut);
    row.value += term.value;
    row.accepted += term.accepted ? 1 : 0;
    slopes[i] = term.slope;
    coupled += term.slope;
    if (o.ratio == Ratio::token)
      seen.kl_old += std::exp(b.current[i] - b.old[i]) - 1 - (b.current[i] - b.old[i]);
    if (o.kl == 0) continue;
    const Term kl = kl_term(o.kl_estimator, b.current[i] - b.reference[i]);
    row.value -= o.kl * kl.value;
    slopes[i] -= o.kl * kl.slope;
    row.kl += kl.value;
  }
  if (o.ratio != Ratio::sequence) return row;
  for (std::size_t i = begin; i < end; ++i) {
    if (b.mask[i] == 0) continue;
    const double kl =
        o.kl == 0 ? 0 : o.kl * kl_term(o.kl_estimator, b.current[i] - b.reference[i]).slope;
    slopes[i] = coupled / row.tokens - kl;
  }
  return row;
}

}  // namespace

// Average, and differentiate the average.
double denominator(const Objective& o, const PolicyBatch& batch) {
  double tokens = 0, sequences = 0;
  for (std::size_t k = 0; k + 1 < batch.starts.size(); ++k) {
    double here = 0;
    for (std::size_t i = batch.starts[k]; i < batch.starts[k + 1]; ++i)
      here += batch.mask[i] != 0 ? 1 : 0;
    tokens += here;
    sequences += here > 0 ? 1 : 0;
  }
  if (o.average == Average::token_mean) return tokens;
  return o.average == Average::constant ? sequences * o.length : sequences;
}

ObjectiveResult evaluate(const Objective& o, const PolicyBatch& batch, double scale) {
  check(o, batch);
  ObjectiveResult result;
  result.weights.resize(batch.mask.size());
  Diagnostics& seen = result.seen;
  seen.ratio_min = std::numeric_limits<double>::infinity();
  double accepted = 0;
  for (std::size_t k = 0; k + 1 < batch.starts.size(); ++k) {
    const std::size_t begin = batch.starts[k], end = batch.starts[k + 1];
    const Row row = one_sequence(o, batch, begin, end, result.weights, seen);
    if (row.tokens == 0) continue;
    const double kept = o.denominator == Denominator::accepted ? row.accepted : row.tokens;
    const bool mean = o.average == Average::sequence_mean_token_mean;
    const double share = mean ? (kept > 0 ? 1 / kept : 0) : 1;
    for (std::size_t i = begin; i < end; ++i) result.weights[i] *= share;
    result.value += row.value * share;
    accepted += kept;
    seen.tokens += row.tokens;
    ++seen.sequences;
    seen.kl_reference += row.kl;
  }
  double below = scale > 0 ? scale : denominator(o, batch);
  if (scale <= 0 && o.average == Average::token_mean) below = std::max(accepted, 1.0);
  result.value /= below;
  for (double& w : result.weights) w /= below;
  const double n = seen.tokens;
  seen.effective = seen.ratio_mean * seen.ratio_mean / (n * seen.effective);
  for (double* share : {&seen.ratio_mean, &seen.clipped_up, &seen.clipped_down, &seen.corrected,
                        &seen.kl_old, &seen.kl_reference})
    *share /= n;
  return result;
}

// The critic's loss.
ObjectiveResult value_loss(std::span<const double> values, std::span<const double> old_values,
                           std::span<const double> targets, std::span<const std::uint8_t> mask,
                           double clip) {
  const std::size_t n = mask.size();
  if (values.size() != n || targets.size() != n || (clip > 0 && old_values.size() != n))
    refuse("values", fmt::format("columns of {}, {} and {} for {} tokens", values.size(),
                                 old_values.size(), targets.size(), n));
  ObjectiveResult result;
  result.weights.resize(n);
  const auto count =
      static_cast<double>(n - static_cast<std::size_t>(std::ranges::count(mask, std::uint8_t{0})));
  if (count == 0) refuse("mask", "it selects nothing");
  for (std::size_t i = 0; i < n; ++i) {
    if (mask[i] == 0) continue;
    const double plain = values[i] - targets[i];
    double error = plain, slope = plain;
    if (clip > 0) {
      const double bounded = std::clamp(values[i], old_values[i] - clip, old_values[i] + clip);
      const double other = bounded - targets[i];
      if (other * other > plain * plain) {
        error = other;
        slope = bounded == values[i] ? other : 0;
      }
    }
    if (!std::isfinite(error)) refuse("values", fmt::format("token {} is not finite", i));
    result.value += error * error / 2 / count;
    result.weights[i] = slope / count;
  }
  result.seen.tokens = count;
  return result;
}

}  // namespace rose::rlhf
