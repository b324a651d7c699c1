// Train in a GPU's memory.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "rose/kernels/gpu/muon.h"
#include "rose/model/gpu_backward.h"
#include "rose/trainer/compute.h"
#include "rose/trainer/loss_scale.h"

namespace rose::trainer {

/// How a GPU trains.
struct GpuComputeOptions {
  std::int64_t tokens = 0;        ///< of the largest micro-batch
  std::int64_t head_rows = 8192;  ///< tokens whose logits exist at a time
  kernels::DType dtype = kernels::DType::bf16;
  model::Recompute recompute = model::Recompute::selective;
  bool measured = false;  ///< plan products by timing them: some seconds at the start
  bool free = false;      ///< let the library cut sums as it likes: for measuring only
};

/// The device in use, and how much of its memory is taken; the peak is that of the type.
DeviceInfo gpu_device(kernels::DType dtype);

/// Adds up what a pass says of each token, in their order.
LossSum loss_sum(const MicroBatch& batch, std::span<const float> losses,
                 std::span<const float> lse);

/// Masters, gradients and moments in fp32, passes in `dtype`: bf16, f32, or f16 under a loss scale. The same inputs give the same bits.
class GpuCompute final : public Compute {
 public:
  GpuCompute(std::shared_ptr<model::WeightSet> weights, ComputeOptions options,
             const GpuComputeOptions& gpu);

  void zero_gradients() override { training_.zero_gradients(); }
  LossSum accumulate(const MicroBatch& batch, double scale) override;
  LossSum evaluate(const MicroBatch& batch) override;
  void logprobs(const MicroBatch& batch, std::span<float> out) override;
  double gradient_norm() override;
  void update(const UpdateArgs& args) override;
  void skip() override;
  void visit(const std::function<void(const StateTensor&)>& visitor) override;
  const model::WeightSet& weights() override;
  DeviceInfo device() const override;

  const LossScale& loss_scale() const { return loss_scale_; }
  const model::GpuParameters& parameters() const { return parameters_; }
  model::GpuTraining& training() { return training_; }

 private:
  LossSum sums(const MicroBatch& batch);
  void step_matrices(const UpdateArgs& args, float factor);

  std::shared_ptr<model::WeightSet> weights_;
  ComputeOptions options_;
  std::vector<ParameterRule> rules_;
  model::GpuParameters parameters_;
  model::GpuTraining training_;
  kernels::gpu::Buffer moments_;               // first, second
  kernels::gpu::Buffer norm_blocks_, blocks_;  // all that is trained; what AdamW steps
  std::int64_t norm_count_ = 0, count_ = 0;
  std::vector<std::size_t> groups_;   // of AdamW: a parameter of each
  kernels::gpu::Buffer square_sums_;  // the total, then what is summed up
  kernels::gpu::HostBuffer total_;
  kernels::gpu::LinearPlans muon_plans_{false};
  kernels::gpu::Buffer muon_scratch_;
  bool stale_ = false;          // the host's copy of the weights
  LossScale loss_scale_{1.0f};  // f16 only
  std::vector<float> losses_, lse_;
};

}  // namespace rose::trainer
