// Train as a configuration says.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "rose/core/parallel.h"
#include "rose/trainer/compute.h"
#include "rose/trainer/config.h"

namespace rose::trainer {

/// Processes that take the steps of one run together. The first writes, the others compute.
class Team {
 public:
  virtual ~Team() = default;
  virtual int rank() const = 0;
  virtual void wait() = 0;          ///< until all have come here
  virtual bool any(bool mine) = 0;  ///< whether it is so in any process
  /// What a step does when it is shared. May settle what the configuration leaves open.
  virtual std::unique_ptr<Compute> share(std::unique_ptr<Compute> compute, TrainConfig& config) = 0;
};

struct RunHooks {
  std::function<bool()> interrupted{};          ///< asked after each step
  std::function<void(std::string_view)> say{};  ///< a line for people
  bool progress = false;                        ///< a bar on standard error
  Team* team = nullptr;                         ///< null: this process is alone
};

struct RunResult {
  std::int64_t step = 0;
  bool interrupted = false;
  double first_loss = 0.0, loss = 0.0;  ///< of the first and of the last step of this call
  double validation_loss = 0.0, bits_per_byte = 0.0;  ///< 0: never measured
  double seconds = 0.0;                               ///< of the steps alone
  std::filesystem::path checkpoint{};  ///< the last one: a folder that rose and Hugging Face open
};

/// Prepares, trains to config.steps, and leaves in config.folder(): config.yaml, metrics, samples, curve, checkpoints.
/// A folder that holds a run is gone on with when `resume`, and refused otherwise.
RunResult train(const TrainConfig& config, bool resume, const RunHooks& hooks,
                core::ThreadPool& pool = core::default_pool());

/// The configuration that a run's folder holds, with overrides.
TrainConfig config_of_run(const std::filesystem::path& folder,
                          const std::vector<std::string>& overrides = {});

}  // namespace rose::trainer
