// Take the steps of a run together.

#pragma once

#include <memory>
#include <vector>

#include "rose/dist/group.h"
#include "rose/trainer/compute.h"
#include "rose/trainer/config.h"
#include "rose/trainer/gradient_tree.h"
#include "rose/trainer/run.h"

namespace rose::trainer {

/// A compute that does its process's part of every step.
class DataParallelCompute final : public Compute {
 public:
  /// A step has so many micro-batches, in so many groups: a power of two that the processes divide. Throws core::Error
  /// (invalid_argument) otherwise, and unsupported for gradients that do not lie in the host's memory.
  DataParallelCompute(std::unique_ptr<Compute> inner, dist::Group& group,
                      std::int64_t micro_batches, std::int64_t groups);

  void zero_gradients() override;
  LossSum accumulate(const MicroBatch& batch, double scale) override;
  LossSum complete(const LossSum& found) override;

  LossSum evaluate(const MicroBatch& batch) override { return inner_->evaluate(batch); }
  void logprobs(const MicroBatch& batch, std::span<float> out) override {
    inner_->logprobs(batch, out);
  }
  double gradient_norm() override { return inner_->gradient_norm(); }
  void update(const UpdateArgs& args) override { inner_->update(args); }
  void skip() override { inner_->skip(); }
  void visit(const std::function<void(const StateTensor&)>& visitor) override {
    inner_->visit(visitor);
  }
  const model::WeightSet& weights() override { return inner_->weights(); }
  DeviceInfo device() const override;
  std::function<void(const std::filesystem::path&)> files() override { return inner_->files(); }
  std::vector<std::span<float>> gradient_spans() override { return inner_->gradient_spans(); }

 private:
  void add_up();

  std::unique_ptr<Compute> inner_;
  dist::Group& group_;
  std::int64_t micro_batches_, groups_;
  std::int64_t next_ = 0;  // micro-batch
  GradientTree tree_;
  std::vector<LossSum> sums_;  // of each micro-batch
};

/// The processes of a group, as a run sees them.
class DataParallelTeam final : public Team {
 public:
  explicit DataParallelTeam(dist::Group& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  void wait() override { group_.barrier(); }
  bool any(bool mine) override;
  std::unique_ptr<Compute> share(std::unique_ptr<Compute> compute, TrainConfig& config) override;

 private:
  dist::Group& group_;
};

}  // namespace rose::trainer
