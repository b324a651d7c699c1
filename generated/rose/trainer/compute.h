// Ask a device for the parts of a training step.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "rose/kernels/dtype.h"
#include "rose/model/weights.h"
#include "rose/trainer/objective.h"
#include "rose/trainer/optimizer.h"

namespace rose::trainer {

/// What stays the same for all steps of a run.
struct ComputeOptions {
  OptimizerOptions optimizer{};
  float z_loss = 0.0f;  ///< coefficient of the squared log-sum-exp, for each token times its weight
};

/// One update of all parameters.
struct UpdateArgs {
  std::int64_t update = 1;  ///< counts updates from 1: skipped steps do not count
  double rate = 0.0;        ///< of the schedule; parameter rules multiply it
  double scale = 1.0;       ///< what gradients are multiplied with: the clipping factor
};

/// One named tensor of the state, wherever it is: its bytes are copied out and in.
struct StateTensor {
  std::string
      role;  ///< "weight", "first" or "second" (moments; Muon's momentum is "first"), or a device's own
  std::string name;  ///< of the parameter: "layers.3.attn.q.weight"
  kernels::DType dtype = kernels::DType::f32;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
  std::function<void(std::span<std::byte>)> read;         ///< copies the tensor out
  std::function<void(std::span<const std::byte>)> write;  ///< replaces it
};

/// What there is to show of a device.
struct DeviceInfo {
  std::string name;
  double peak_flops = 0.0;        ///< of the number format in use; 0: unknown, and no MFU is shown
  std::int64_t memory_used = 0;   ///< bytes, now
  std::int64_t memory_total = 0;  ///< 0: unknown
};

/// Where weights, gradients and optimizer state live, and what a step does there.
class Compute {
 public:
  virtual ~Compute() = default;

  virtual void zero_gradients() = 0;
  /// gradients += the gradient of scale * sum over t of weight_t * (loss_t + z_loss * lse_t^2). A micro-batch's gradient is
  /// completed from zero and then added whole, so the sum's bits depend on the order of micro-batches alone.
  virtual LossSum accumulate(const MicroBatch& batch, double scale) = 0;
  virtual LossSum evaluate(const MicroBatch& batch) = 0;
  /// out[t] = log p(targets[t]); 0 where there is no target. The canonical token_logprob.
  virtual void logprobs(const MicroBatch& batch, std::span<float> out) = 0;
  /// The norm of all trained parameters' gradients in the canonical order; infinite or NaN if any of them is.
  virtual double gradient_norm() = 0;
  virtual void update(const UpdateArgs& args) = 0;
  /// Called instead of update when a step is left out (an fp16 loss scale falls here).
  virtual void skip() {}
  virtual void visit(const std::function<void(const StateTensor&)>& visitor) = 0;
  /// A host copy, refreshed when it is asked for; valid until the next update.
  virtual const model::WeightSet& weights() = 0;
  virtual DeviceInfo device() const = 0;
  /// Writes into a checkpoint's folder what other programs read there besides the weights, from a copy taken now; may be empty.
  virtual std::function<void(const std::filesystem::path&)> files() { return {}; }
  /// The gradients, where they lie in the host's memory: what several processes add up. Empty: they lie elsewhere.
  virtual std::vector<std::span<float>> gradient_spans() { return {}; }
  /// Called after a step's last micro-batch with what its passes found; returns what the whole step found, in all processes
  /// that share it. Afterwards the gradients are the step's.
  virtual LossSum complete(const LossSum& found) { return found; }
};

}  // namespace rose::trainer
