// The losses and their derivatives.

#include "rose/trainer/preference.h"

#include <algorithm>
#include <cmath>

namespace rose::trainer {

namespace {

double logistic(double t) {
  return t >= 0.0 ? 1.0 / (1.0 + std::exp(-t)) : std::exp(t) / (1.0 + std::exp(t));
}

double log_logistic(double t) {
  return std::min(t, 0.0) - std::log1p(std::exp(-std::abs(t)));
}

}  // namespace

bool has_reference(PreferenceLoss loss) {
  return loss == PreferenceLoss::dpo || loss == PreferenceLoss::ipo || loss == PreferenceLoss::kto;
}

// Pairs: DPO, IPO, SimPO, ORPO.
PreferenceValue preference(const PreferenceOptions& o, const AnswerScore& chosen,
                           const AnswerScore& rejected) {
  const auto per_token = [](const AnswerScore& a) { return 1.0 / static_cast<double>(a.tokens); };
  PreferenceValue out;
  double anchor = o.anchor, by_chosen = 1.0, by_rejected = 1.0, slope = 0.0;
  switch (o.loss) {
    case PreferenceLoss::dpo:
      out.margin = o.beta * (chosen.ratio() - rejected.ratio());
      out.loss =
          -(1.0 - o.smoothing) * log_logistic(out.margin) - o.smoothing * log_logistic(-out.margin);
      slope = o.beta * (logistic(out.margin) - (1.0 - o.smoothing));
      break;
    case PreferenceLoss::ipo: {
      out.margin = chosen.ratio() - rejected.ratio();
      const double apart = out.margin - 1.0 / (2.0 * o.beta);
      out.loss = apart * apart, slope = 2.0 * apart;
      break;
    }
    case PreferenceLoss::simpo:
      out.margin = o.beta * (chosen.mean() - rejected.mean());
      out.loss = -log_logistic(out.margin - o.margin);
      slope = -o.beta * logistic(o.margin - out.margin);
      by_chosen = per_token(chosen), by_rejected = per_token(rejected);
      break;
    default: {  // orpo: log-odds, whose derivative by the mean is 1 / (1 - p)
      constexpr double sure = 1.0 - 1e-9;  // the odds of certainty would be infinite
      const double p_chosen = std::min(std::exp(chosen.mean()), sure),
                   p_rejected = std::min(std::exp(rejected.mean()), sure);
      out.margin =
          chosen.mean() - std::log1p(-p_chosen) - rejected.mean() + std::log1p(-p_rejected);
      out.loss = -o.beta * log_logistic(out.margin);
      slope = -o.beta * logistic(-out.margin);
      by_chosen = per_token(chosen) / (1.0 - p_chosen);
      by_rejected = per_token(rejected) / (1.0 - p_rejected);
      anchor = 1.0;
    }
  }
  out.loss -= anchor * chosen.mean();
  out.chosen = slope * by_chosen - anchor * per_token(chosen);
  out.rejected = -slope * by_rejected;
  return out;
}

// Single answers: KTO.
PreferenceValue kto(const PreferenceOptions& o, const AnswerScore& answer, bool good, double z) {
  const double sign = good ? 1.0 : -1.0, weight = good ? o.good : o.bad;
  PreferenceValue out;
  out.margin = sign * o.beta * (answer.ratio() - z);
  const double s = logistic(out.margin);
  out.loss = weight * (1.0 - s);
  out.chosen = -sign * weight * o.beta * s * (1.0 - s);
  return out;
}

}  // namespace rose::trainer
