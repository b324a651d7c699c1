// Run a model forward and back on a GPU.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/attention_backward.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/linear_backward.h"
#include "rose/kernels/gpu/stopwatch.h"
#include "rose/model/forward.h"
#include "rose/model/gpu_parameters.h"
#include "rose/model/gpu_saved.h"

namespace rose::model {

struct GpuTrainingOptions {
  GpuTrainingShape shape;
  float z = 0;            ///< coefficient of the squared log-sum-exp
  bool measured = false;  ///< plan products by timing them
  bool free = false;  ///< let the library cut the sums of weights' gradients: for measuring only
};

/// A packed micro-batch on the host.
struct GpuExamples {
  Batch batch;
  std::span<const std::int32_t> targets;  ///< [T]; negative: no loss here
  std::span<const float> weights;         ///< [T] of each token's loss; empty: 1
};

// Take part in the products of every block.

/// As they are packed: queries, keys and values; the output of attention; gate and up; down.
enum class BlockProduct : std::uint8_t { qkv, o, up, down };

class BesideProducts {
 public:
  virtual ~BesideProducts() = default;
  /// y, the product of x [T, K] with its weight and bias, is ready: something may be added to it.
  virtual void forward(std::size_t layer, BlockProduct which, const kernels::gpu::Matrix& x,
                       const kernels::gpu::Matrix& y, kernels::gpu::Stream stream) = 0;
  /// dy [T, N] is ready, and x is still there.
  virtual void before_back(std::size_t layer, BlockProduct which, const kernels::gpu::Matrix& dy,
                           const kernels::gpu::Matrix& x, kernels::gpu::Stream stream) = 0;
  /// dx is the weight's part of the gradient: something may be added to it. It may lie where x lay.
  virtual void after_back(std::size_t layer, BlockProduct which, const kernels::gpu::Matrix& dx,
                          kernels::gpu::Stream stream) = 0;
};

// The two passes, and all that they need beside the parameters.
class GpuTraining {
 public:
  GpuTraining(const GpuParameters& parameters, const GpuTrainingOptions& options);
  GpuTraining(const GpuTraining&) = delete;
  GpuTraining& operator=(const GpuTraining&) = delete;

  /// The gradients become zero. Enqueues.
  void zero_gradients();
  /// Gradients += d(scale * sum over t of weight_t * (loss_t + z lse_t^2)). Enqueues.
  void accumulate(const GpuExamples& examples, float scale);
  /// Losses without gradients. Enqueues.
  void evaluate(const GpuExamples& examples);
  /// Of the pass before: losses [T] and log-sum-exps [T]. Waits for its head, not for its way back.
  void losses(std::span<float> losses, std::span<float> lse);
  /// Of the pass before, which was `evaluate` with room for all logits: [T, V]. Waits. For tests.
  std::vector<float> logits() const;

  kernels::gpu::Stream stream() const { return stream_.get(); }
  void time_with(kernels::gpu::Stopwatch* watch) { watch_ = watch; }  ///< null: no longer
  void stand_beside(BesideProducts* beside) { beside_ = beside; }     ///< null: nobody
  /// Device memory that this object holds now, its parameters' not counted.
  std::size_t bytes() const;
  /// What it will hold for rows like these: GpuSaved, scratch, attention's plans; with `accumulates`, for several micro-batches.
  static std::size_t bytes(const Config& config, const GpuTrainingOptions& options,
                           std::span<const std::int32_t> row_offsets, bool accumulates);

 private:
  friend class TrainingOperations;
  void load(const GpuExamples& examples);
  void forward();
  void score(float scale, bool train);
  void tell();
  void backward();
  void mark(const char* name) {
    if (watch_ != nullptr) watch_->mark(name, stream());
  }

  const GpuParameters& parameters_;
  GpuTrainingOptions options_;
  kernels::gpu::OwnedStream stream_;
  GpuSaved saved_;
  kernels::gpu::LinearPlans plans_;
  kernels::gpu::BackwardPlans back_plans_;
  kernels::gpu::Buffer scratch_, attention_, attention_back_;
  kernels::gpu::Buffer whole_;  // one table's gradient of one micro-batch, where several are added
  kernels::gpu::HostBuffer staging_;
  kernels::gpu::AttentionPlan plan_;
  kernels::gpu::AttentionBackwardPlan back_plan_;
  std::vector<std::int32_t> offsets_;  // that the plans are for
  std::int64_t tokens_ = 0;
  float rope_scale_ = 1;
  std::size_t staged_ = 0;  // bytes of the staging memory that hold the batch
  std::span<float> told_,
      told_lse_;  // behind them: losses and log-sum-exps, once scored_ is reached
  kernels::gpu::Event scored_;
  bool waiting_ = false;   // for scored_
  bool fresh_ = false;     // the gradients are zero
  bool weighted_ = false;  // the batch has weights
  bool trained_ =
      false;  // the pass before computed gradients, and losses in place of log-probabilities
  kernels::gpu::Stopwatch* watch_ = nullptr;
  BesideProducts* beside_ = nullptr;
};

}  // namespace rose::model
