// Turn two log-probabilities into a loss and two weights.

#pragma once

#include <cstdint>
#include <string>

namespace rose::trainer {

/// Which loss compares.
enum class PreferenceLoss : std::uint8_t { dpo, ipo, kto, simpo, orpo };

/// A loss and its constants.
struct PreferenceOptions {
  PreferenceLoss loss = PreferenceLoss::dpo;
  double beta = 0.1;  ///< dpo, kto: of the log-ratios; ipo: tau; simpo: of the means; orpo: lambda
  double smoothing = 0.0;        ///< dpo: share of wrong verdicts
  double margin = 0.0;           ///< simpo: gamma
  double anchor = 0.0;           ///< dpo, ipo, simpo: weight of the winner's mean supervised loss
  double good = 1.0, bad = 1.0;  ///< kto: weights of the two kinds
};

/// Whether the loss compares with a reference.
bool has_reference(PreferenceLoss loss);

/// Of one answer: sums over its tokens, and how many there are.
struct AnswerScore {
  double policy = 0.0, reference = 0.0;
  std::int64_t tokens = 1;

  double ratio() const { return policy - reference; }
  double mean() const { return policy / static_cast<double>(tokens); }
};

/// A loss, and its derivatives by the answers' summed log-probabilities under the policy.
struct PreferenceValue {
  double loss = 0.0;
  double chosen = 0.0, rejected = 0.0;
  double margin = 0.0;  ///< what the loss compares: above 0 when the winner is ahead
};

/// Of a pair; not for kto.
PreferenceValue preference(const PreferenceOptions& options, const AnswerScore& chosen,
                           const AnswerScore& rejected);

/// Of one answer that is good or bad, with the reference point `z`, through which no derivative goes. `chosen` is its derivative.
PreferenceValue kto(const PreferenceOptions& options, const AnswerScore& answer, bool good,
                    double z);

}  // namespace rose::trainer
