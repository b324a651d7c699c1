// Is there a GPU that computes rightly?

#pragma once

#include <string>

namespace rose::kernels {

enum class DeviceState {
  not_built,  ///< this build has no CUDA code
  none,       ///< no driver or no GPU
  failed,     ///< a GPU answers, and a kernel fails or computes something else than the CPU
  works
};

struct DeviceReport {
  DeviceState state = DeviceState::not_built;
  std::string detail;  ///< names, memory and architecture of the GPUs, or the reason
};

/// Runs a small kernel on every GPU and compares the result bit for bit with the CPU's. Throws nothing.
DeviceReport check_devices();

}  // namespace rose::kernels
