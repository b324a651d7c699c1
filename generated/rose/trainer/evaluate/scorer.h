// Ask a model how likely given tokens are.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/model/weights.h"
#include "rose/trainer/data/micro_batch.h"

namespace rose::trainer {

/// out[t] = log p(targets[t]) in nats, 0 where there is no target. The canonical token_logprob on raw logits.
using LogProbs = std::function<void(const MicroBatch& batch, std::span<float> out)>;

/// On the CPU, from weights of any format.
LogProbs cpu_log_probs(std::shared_ptr<const model::WeightSet> weights,
                       core::ThreadPool& pool = core::default_pool());

/// Sums over a part of a sequence.
struct Score {
  double log_prob = 0.0;    ///< of the tokens, in nats
  std::int64_t tokens = 0;  ///< that were scored
  std::int64_t bytes = 0;   ///< of text that they spell

  Score& operator+=(const Score& other);
};

/// A sequence whose tokens from `first` on are to be scored, each given all before it; first is at least 1.
struct Sequence {
  std::vector<std::int32_t> ids;
  std::size_t first = 1;
};

/// The log-probability of each sequence's scored part. Sequences are packed into micro-batches of at most `most` tokens.
std::vector<double> score_sequences(const LogProbs& log_probs, std::span<const Sequence> sequences,
                                    std::int64_t most);

}  // namespace rose::trainer
