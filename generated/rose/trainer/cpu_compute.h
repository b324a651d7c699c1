// Train in the CPU's memory.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/model/backward.h"
#include "rose/model/forward.h"
#include "rose/trainer/compute.h"

namespace rose::trainer {

/// Weights, gradients and moments in fp32 in the CPU's memory. The same bits for any number of threads.
class CpuCompute : public Compute {
 public:
  /// The weights are updated in place; they must be fp32.
  CpuCompute(std::shared_ptr<model::WeightSet> weights, ComputeOptions options,
             core::ThreadPool& pool = core::default_pool());

  void zero_gradients() override;
  LossSum accumulate(const MicroBatch& batch, double scale) override;
  LossSum evaluate(const MicroBatch& batch) override;
  void logprobs(const MicroBatch& batch, std::span<float> out) override;
  double gradient_norm() override;
  void update(const UpdateArgs& args) override;
  void visit(const std::function<void(const StateTensor&)>& visitor) override;
  std::vector<std::span<float>> gradient_spans() override { return {gradients_.all()}; }
  const model::WeightSet& weights() override { return *weights_; }
  DeviceInfo device() const override;

  const model::Gradients& gradients() const { return gradients_; }

 protected:  // a later chapter trains something else beside frozen weights
  CpuCompute(std::shared_ptr<model::WeightSet> weights, ComputeOptions options,
             const std::function<bool(const model::Parameter&)>& wanted, core::ThreadPool& pool);
  virtual model::Batch input(const MicroBatch& batch) const { return batch_of(batch); }
  virtual void back(const MicroBatch& batch, model::Gradients& gradients);

  enum class Pass : std::uint8_t { evaluate, train };
  LossSum run(const MicroBatch& batch, Pass pass, double scale, model::Gradients& gradients);
  void head_rows(const MicroBatch& batch, std::span<const std::int32_t> rows, Pass pass,
                 double scale, model::Gradients& gradients);

  std::shared_ptr<model::WeightSet> weights_;
  ComputeOptions options_;
  core::ThreadPool& pool_;
  HostOptimizer optimizer_;
  model::Gradients gradients_;
  std::unique_ptr<model::Gradients> part_;  // of one micro-batch, from the second of a step on
  bool empty_ = true;                       // nothing has been accumulated since zero_gradients
  model::Workspace forward_work_;
  model::BackwardWorkspace backward_work_;
  model::Saved saved_;
  std::vector<std::int32_t> counted_, targets_;  // the tokens with a target, and their targets
  std::vector<float> hidden_, d_hidden_, rows_, d_rows_, logits_, logprobs_, lse_, scales_;
};

}  // namespace rose::trainer
