// Ask what the device did.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rose::kernels::gpu {

/// A kernel or a copy, in nanoseconds of the system clock.
struct Activity {
  std::string name;
  std::int64_t begin = 0, end = 0;
};

/// From now on, for the whole process. False: this build or machine cannot tell.
bool start_activities();
/// In no particular order. The device should be idle.
std::vector<Activity> stop_activities();

}  // namespace rose::kernels::gpu
