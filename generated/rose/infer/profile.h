// Say where the time of a step goes.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rose::infer {

/// Something that took time, in nanoseconds of the system clock.
struct ProfileSpan {
  std::string name, track;  ///< tracks lie one under the other
  std::int64_t begin = 0, end = 0;
};
std::int64_t profile_clock();

// Ranges for NVIDIA's tools (NVTX), which nest; a load and a branch each while no tool is attached, nothing without CUDA.
void begin_range(const char* name);
void end_range();

/// From here to the end of the scope, if somebody records.
class Stretch {
 public:
  Stretch(std::optional<std::vector<ProfileSpan>>& to, const char* name)
      : to_(to), name_(name), begin_(to ? profile_clock() : 0) {
    begin_range(name);
  }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;
  ~Stretch() {
    end_range();
    if (to_ && begin_ > 0) to_->push_back({name_, "engine", begin_, profile_clock()});
  }

 private:
  std::optional<std::vector<ProfileSpan>>& to_;
  const char* name_;
  std::int64_t begin_;
};

/// An object with an array of complete events, in microseconds since the first.
std::string chrome_trace(std::span<const ProfileSpan> spans);

}  // namespace rose::infer
