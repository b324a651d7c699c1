// What a build without CUDA answers.

#include "rose/kernels/device.h"

namespace rose::kernels {

#ifndef ROSE_HAVE_CUDA
DeviceReport check_devices() {
  return {DeviceState::not_built, "a build finds the CUDA 13 toolkit by `nvcc` on the PATH"};
}
#endif

}  // namespace rose::kernels
