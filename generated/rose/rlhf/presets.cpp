// What each name chooses.

#include "rose/rlhf/presets.h"

namespace rose::rlhf {

Objective reinforce() {
  return {.ratio = Ratio::none, .gate = Gate::none, .average = Average::sequence_mean_token_sum};
}
Objective ppo(double clip, double dual) {
  return {.low = clip, .high = clip, .dual = dual};
}
Objective grpo(double clip, double kl) {
  Objective o = ppo(clip);
  o.average = Average::sequence_mean_token_mean;
  o.kl = kl;
  return o;
}
Objective dapo(double low, double high) {
  return {.low = low, .high = high};
}
Objective dr_grpo(double max_tokens, double clip) {
  Objective o = ppo(clip);
  o.average = Average::constant;
  o.length = max_tokens;
  return o;
}
Objective gspo(double low, double high) {
  return {.ratio = Ratio::sequence,
          .low = low,
          .high = high,
          .average = Average::sequence_mean_token_mean};
}
Objective gspo_token(double low, double high) {
  Objective o = gspo(low, high);
  o.ratio = Ratio::sequence_token;
  return o;
}
Objective sapo(double tau_positive, double tau_negative) {
  return {.gate = Gate::sigmoid,
          .low = tau_positive,
          .high = tau_negative,
          .average = Average::sequence_mean_token_mean};
}

// Detached weights, caps, and corrections.
Objective cispo(double high) {
  return {.gate = Gate::weight, .low = 1, .high = high};
}
Objective dis(double low, double high, bool attached) {
  return {
      .ratio = Ratio::direct, .gate = Gate::reject, .low = low, .high = high, .attached = attached};
}
Objective aipo(double cap) {
  return {.ratio = Ratio::direct, .gate = Gate::cap, .high = cap};
}
Objective decoupled_ppo(double clip) {
  Objective o = ppo(clip);
  o.correction = Correction::full;
  return o;
}
Objective dppo(double divergence, double cap) {
  return {.gate = Gate::divergence, .low = divergence, .high = cap};
}
Objective up_grpo(double clip, double dual) {
  return {.gate = Gate::positive, .low = clip, .high = clip, .dual = dual};
}

Objective with_tis(Objective objective, double cap) {
  objective.correction = Correction::truncate;
  objective.correction_high = cap;
  return objective;
}
Objective with_icepop(Objective objective, double low, double high) {
  objective.correction = Correction::mask;
  objective.correction_low = low;
  objective.correction_high = high;
  return objective;
}

}  // namespace rose::rlhf
