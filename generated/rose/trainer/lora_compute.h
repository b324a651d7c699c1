// Train an adapter beside frozen weights.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rose/kernels/dropout.h"
#include "rose/model/adapter_backward.h"
#include "rose/trainer/config.h"
#include "rose/trainer/cpu_compute.h"

namespace rose::trainer {

/// Rank, scale and targets as the configuration names them.
model::AdapterOptions adapter_options(const LoraConfig& config);

/// Counts passes, and is part of a checkpoint: the next pass after a restart leaves out what it would have left out.
class PassCounter {
 public:
  std::uint64_t next() { return count_++; }
  void visit(const std::function<void(const StateTensor&)>& visitor);

 private:
  std::uint64_t count_ = 0;
};

/// Writes an adapter in PEFT's layout into a checkpoint's folder, and which tokens end an answer.
std::function<void(const std::filesystem::path&)> adapter_files(const model::Config& config,
                                                                const model::Adapter& adapter);

/// The words of an adapter's dropout are others than those that it is drawn with.
kernels::Dropout lora_dropout(float rate, std::uint64_t seed);

/// The CPU, training an adapter and nothing else.
class LoraCompute final : public CpuCompute {
 public:
  /// The weights are never written. AdamW with the options' constants; A and B decay alike.
  LoraCompute(std::shared_ptr<model::WeightSet> weights, const ComputeOptions& options,
              const model::AdapterOptions& adapter, std::uint64_t seed,
              core::ThreadPool& pool = core::default_pool());

  void zero_gradients() override;
  LossSum accumulate(const MicroBatch& batch, double scale) override;
  double gradient_norm() override;
  void update(const UpdateArgs& args) override;
  void visit(const std::function<void(const StateTensor&)>& visitor) override;
  std::vector<std::span<float>> gradient_spans() override;
  void set_dropout(float rate);                ///< 0 at the start
  const model::WeightSet& weights() override;  ///< merged
  DeviceInfo device() const override;
  /// The adapter in PEFT's layout.
  std::function<void(const std::filesystem::path&)> files() override;

  const model::Adapter& adapter() const { return adapter_; }
  const model::Adapter& changes() const { return changes_; }  ///< the gradient
  std::int64_t trained() const;                               ///< how many numbers

 private:
  model::Batch input(const MicroBatch& batch) const override;
  void back(const MicroBatch& batch, model::Gradients& gradients) override;

  struct Piece {
    std::string name;  ///< "layers.0.attn.q.lora_a"
    std::vector<std::int64_t> shape;
    std::vector<float>*weight, *change, *part;  ///< of the adapter, its gradient, a micro-batch's
    std::vector<float> first, second;           ///< moments
  };

  model::Adapter adapter_, changes_, part_;
  model::Adapter* into_ = &changes_;  ///< what a pass adds to
  OptimizerOptions rules_;
  std::vector<Piece> pieces_;
  kernels::Dropout dropout_;
  bool thin_ = false;   ///< during a training pass
  PassCounter passes_;  ///< training passes so far, where something is left out
  bool fresh_ = true;   ///< nothing has been accumulated since zero_gradients
  mutable std::vector<const model::Adapter*> named_;
  std::shared_ptr<model::WeightSet> merged_;
  std::uint64_t merged_version_ = 0;
};

}  // namespace rose::trainer
