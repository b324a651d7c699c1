// The names of the literature.

#pragma once

#include "rose/rlhf/objective.h"

namespace rose::rlhf {

Objective reinforce();  ///< A log-probability, summed over a sequence; also RLOO
Objective ppo(double clip = 0.2, double dual = 0);
Objective grpo(double clip, double kl);  ///< its paper states no clip
Objective dapo(double low = 0.2, double high = 0.28);
Objective dr_grpo(double max_tokens, double clip = 0.2);
Objective gspo(double low, double high);
Objective gspo_token(double low, double high);
Objective sapo(double tau_positive = 1.0, double tau_negative = 1.05);
Objective cispo(double high);  ///< the bound is 1 + high, and there is none below
/// DIS, the objective of SAO. `attached` differentiates the weight as well.
Objective dis(double low, double high, bool attached = false);
Objective aipo(double cap);
Objective decoupled_ppo(double clip = 0.2);
Objective dppo(double divergence, double cap = 20);
Objective up_grpo(double clip, double dual);

/// Truncated importance sampling: the correction is capped.
Objective with_tis(Objective objective, double cap);
/// IcePop: tokens whose correction leaves [low, high] are dropped.
Objective with_icepop(Objective objective, double low, double high);

}  // namespace rose::rlhf
