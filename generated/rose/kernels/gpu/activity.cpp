// Without CUDA there is no device to ask.

#include "rose/kernels/gpu/activity.h"

#ifndef ROSE_HAVE_CUDA
namespace rose::kernels::gpu {

bool start_activities() {
  return false;
}
std::vector<Activity> stop_activities() {
  return {};
}

}  // namespace rose::kernels::gpu
#endif
