// Choose the device.

#pragma once

#include <memory>
#include <string>

#include "rose/core/parallel.h"
#include "rose/model/weights.h"
#include "rose/trainer/compute.h"
#include "rose/trainer/gpu_compute.h"

namespace rose::trainer {

/// As in the configuration: "auto" takes a GPU where there is one that can train.
struct DeviceChoice {
  std::string device = "auto", precision = "fp32", recompute = "auto";
  std::int64_t tokens = 0;  ///< of the largest micro-batch
};

/// The parts of make_compute(), for what trains something else than all weights. Throw as it does.
bool on_gpu(const DeviceChoice& choice);
GpuComputeOptions gpu_options(const DeviceChoice& choice);
void check_cpu(const DeviceChoice& choice);

/// Throws core::Error (unsupported) when the device is not there or cannot compute so.
std::unique_ptr<Compute> make_compute(std::shared_ptr<model::WeightSet> weights,
                                      const ComputeOptions& options, const DeviceChoice& choice,
                                      core::ThreadPool& pool = core::default_pool());

}  // namespace rose::trainer
