// Train an adapter on a GPU.

#pragma once

#include <memory>
#include <vector>

#include "rose/model/gpu_trained_adapter.h"
#include "rose/trainer/gpu_compute.h"
#include "rose/trainer/lora_compute.h"

namespace rose::trainer {

/// LoraCompute's state and meaning, in a GPU's memory: a checkpoint of either goes on with the other, if not to the bit.
class GpuLoraCompute final : public Compute {
 public:
  GpuLoraCompute(std::shared_ptr<model::WeightSet> weights, const ComputeOptions& options,
                 const model::AdapterOptions& adapter, std::uint64_t seed, float dropout,
                 const GpuComputeOptions& gpu);

  void zero_gradients() override { adapter_.zero_gradients(training_.stream()); }
  LossSum accumulate(const MicroBatch& batch, double scale) override;
  LossSum evaluate(const MicroBatch& batch) override;
  void logprobs(const MicroBatch& batch, std::span<float> out) override;
  double gradient_norm() override;
  void update(const UpdateArgs& args) override;
  void visit(const std::function<void(const StateTensor&)>& visitor) override;
  const model::WeightSet& weights() override;  ///< merged
  DeviceInfo device() const override;
  std::function<void(const std::filesystem::path&)> files() override;

  model::GpuTrainedAdapter& adapter() { return adapter_; }

 private:
  LossSum sums(const MicroBatch& batch);
  void show(const std::function<void(const StateTensor&)>& visitor, const char* role,
            model::PairArray of, const model::PairTensor& tensor);

  std::shared_ptr<model::WeightSet> weights_;
  OptimizerOptions rules_;
  model::GpuParameters parameters_;
  model::GpuTraining training_;
  model::GpuTrainedAdapter adapter_;
  kernels::Dropout dropout_;
  PassCounter passes_;
  std::vector<float> losses_, lse_;
  std::shared_ptr<model::WeightSet> merged_;  // null: not of these numbers
};

}  // namespace rose::trainer
