// Draw, accumulate, measure, update.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rose/core/json.h"
#include "rose/trainer/compute.h"
#include "rose/trainer/data/micro_batch.h"
#include "rose/trainer/rate_schedule.h"
#include "rose/trainer/spikes.h"

namespace rose::trainer {

/// What is done about steps that look wrong.
struct WatchOptions {
  std::int64_t window = 128;  ///< values that a spike is measured against
  double threshold = 5.0;     ///< in standard deviations
  bool skip = false;          ///< leave out a step whose loss or norm stands out
  std::int64_t give_up = 10;  ///< throw after so many steps in a row that are not finite
};

struct LoopOptions {
  std::int64_t rows = 8, context = 128, micro_batches = 1;
  double clip = 1.0;  ///< largest gradient norm; 0 does not clip
  RateSchedule rate{};
  WatchOptions watch{};
};

/// What a checkpoint keeps of a loop, beside the tensors and the data's position.
struct LoopState {
  std::int64_t step = 0, updates = 0, skipped = 0, bad_in_a_row = 0;
  std::int64_t tokens = 0;                ///< with a target, seen so far
  std::vector<double> losses{}, norms{};  ///< the detectors' windows

  core::json::object to_json() const;
  static LoopState from_json(const core::json::object& json, std::string_view where);
};

struct StepReport {
  std::int64_t step = 0;  ///< counted from 1
  LossSum sum{};
  double gradient_norm = 0.0, rate = 0.0;
  double loss_z = 0.0, norm_z = 0.0;  ///< standard deviations above the window
  bool skipped = false, spike = false;
};

/// Fills a micro-batch with so many rows of so many tokens.
using BatchSource =
    std::function<void(std::int64_t rows, std::int64_t context, MicroBatchBuffer& out)>;

class Loop {
 public:
  Loop(Compute& compute, BatchSource source, const LoopOptions& options);

  /// One step. Throws core::Error (internal) after too many steps in a row that are not finite.
  StepReport step();

  LoopState state() const;
  void restore(const LoopState& state);

 private:
  void judge(StepReport& report);

  Compute& compute_;
  BatchSource source_;
  LoopOptions options_;
  LoopState state_;
  SpikeDetector losses_, norms_;
  std::vector<MicroBatchBuffer> batches_;
};

/// Operations that training takes for each token: 6 for each weight in a matrix product (the head's, not the tables'), and
/// 6 * layers * heads * head_dim * context for causal attention, whose queries see half of the context on average.
double flops_per_token(const model::Config& config, std::int64_t context);

}  // namespace rose::trainer
