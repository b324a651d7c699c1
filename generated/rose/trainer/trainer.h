// Train a model on windows of tokens.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rose/model/backward.h"
#include "rose/model/forward.h"
#include "rose/trainer/adamw.h"
#include "rose/trainer/data.h"
#include "rose/trainer/schedule.h"

namespace rose::trainer {

struct TrainerOptions {
  std::int64_t batch = 16, context = 128;  ///< windows per step, tokens per window
  AdamWOptions optimizer{};
  Schedule schedule{};
  double clip = 1.0;  ///< largest gradient norm; 0 does not clip
  std::uint64_t seed = 1;
};

struct StepResult {
  std::int64_t step = 0;  ///< counted from 1
  double loss = 0.0;      ///< before the update, nats per token
  double gradient_norm = 0.0, rate = 0.0;
};

class Trainer {
 public:
  /// The weights are updated in place. Same weights, options and tokens: same bits, whatever the pool.
  Trainer(std::shared_ptr<model::WeightSet> weights, const TrainerOptions& options,
          core::ThreadPool& pool = core::default_pool());

  StepResult step(std::span<const std::int32_t> tokens);

  /// Mean loss over consecutive windows of `tokens`, at most `windows` of them, spread evenly.
  double evaluate(std::span<const std::int32_t> tokens, std::int64_t windows);

  const model::WeightSet& weights() const { return *weights_; }

 private:
  double forward_backward(std::span<const std::int32_t> ids, std::span<const std::int32_t> targets,
                          bool train);

  std::shared_ptr<model::WeightSet> weights_;
  TrainerOptions options_;
  core::ThreadPool& pool_;
  AdamW optimizer_;
  model::Gradients gradients_;
  model::Workspace forward_work_;
  model::BackwardWorkspace backward_work_;
  model::Saved saved_;
  Windows windows_;
  std::vector<std::int32_t> positions_, offsets_;
  std::vector<float> hidden_, d_hidden_, logits_, losses_, scratch_;
};

}  // namespace rose::trainer
