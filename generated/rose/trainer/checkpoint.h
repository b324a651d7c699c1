// Save a run, load it.

#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/trainer/compute.h"

namespace rose::trainer {

/// What a run is beside its tensors. The JSON values are kept word for word; null where unused.
struct RunState {
  std::int64_t step = 0;     ///< steps taken
  std::int64_t updates = 0;  ///< of them, those that changed the weights
  core::json::value loader{}, rng{}, counters{};
  std::string config{};  ///< the resolved configuration
};

/// What makes the folder a model that other programs open.
struct ModelFiles {
  model::Config config{};
  std::string tokenizer_json{}, tokenizer_config_json{};  ///< empty: not written
};

struct CheckpointOptions {
  int keep = 3;                 ///< the newest so many; 0: all
  std::int64_t keep_every = 0;  ///< steps that are multiples of it stay for good; 0: none
  core::Durability durability = core::Durability::power;
  bool asynchronous = true;  ///< false: save() returns when everything is written
};

// Write checkpoints beside the training.
class CheckpointWriter {
 public:
  /// Creates `folder` where it is missing and clears away what a killed process left half done.
  CheckpointWriter(std::filesystem::path folder, ModelFiles model, CheckpointOptions options = {});
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  ~CheckpointWriter();  ///< waits; an error that nobody fetched is logged

  /// Copies the state and returns; a thread writes it to FOLDER/step-N. Waits for the one before.
  /// Throws core::Error when that one failed (resource_exhausted: no space left).
  void save(Compute& compute, const RunState& state);
  /// Returns when everything is on disk. Throws as save() does.
  void wait();

  /// The newest complete one, written by this object or found in the folder.
  std::optional<std::filesystem::path> last() const;
  double blocked_seconds() const { return blocked_; }  ///< that save() and wait() have taken

 private:
  struct Tensor {
    std::string role, name;
    kernels::DType dtype{};
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  void snapshot(Compute& compute);
  void join();
  void write(const RunState& state);
  bool write_weights(const std::filesystem::path& folder) const;  ///< false: not a whole model
  bool write_moments(const std::filesystem::path& folder) const;
  void retire(std::int64_t newest) const;

  std::filesystem::path folder_;
  ModelFiles model_;
  CheckpointOptions options_;
  std::vector<Tensor> tensors_;  // the snapshot; the writer's while thread_ runs
  std::function<void(const std::filesystem::path&)> extra_;  // of a device, with its own snapshot
  std::thread thread_;
  std::exception_ptr failure_;
  double blocked_ = 0;
};

/// The newest complete checkpoint of a run's folder: all files there, with their sizes.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

/// Reads state.json alone. Throws core::Error: not_found, corrupt, unsupported.
RunState read_run_state(const std::filesystem::path& checkpoint);

/// Verifies every checksum, then fills weights and optimizer state. Throws core::Error: corrupt
/// for a torn file, invalid_argument for another model or another optimizer. On an error before
/// the last check nothing has been written into `compute`.
RunState load_checkpoint(const std::filesystem::path& checkpoint, Compute& compute);

}  // namespace rose::trainer
