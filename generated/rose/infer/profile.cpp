// Say where the time of a step goes.

#include "rose/infer/profile.h"

#include <algorithm>
#include <chrono>
#include <map>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ROSE_NVTX 1
#endif

#include "rose/core/json.h"

namespace rose::infer {

#ifdef ROSE_NVTX
void begin_range(const char* name) {
  nvtxRangePushA(name);
}
void end_range() {
  nvtxRangePop();
}
#else
void begin_range(const char* /*name*/) {}
void end_range() {}
#endif

std::int64_t profile_clock() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string chrome_trace(std::span<const ProfileSpan> spans) {
  constexpr double microsecond = 1e3;
  std::map<std::string, int> tracks;
  std::int64_t first = 0;
  for (const ProfileSpan& s : spans) {
    tracks.try_emplace(s.track, static_cast<int>(tracks.size()));
    first = first == 0 ? s.begin : std::min(first, s.begin);
  }
  core::json::array events;
  for (const auto& [name, number] : tracks)
    events.push_back(core::json::object{{"ph", "M"},
                                        {"name", "thread_name"},
                                        {"pid", 0},
                                        {"tid", number},
                                        {"args", {{"name", name}}}});
  for (const ProfileSpan& s : spans)
    events.push_back(
        core::json::object{{"ph", "X"},
                           {"name", s.name},
                           {"pid", 0},
                           {"tid", tracks.at(s.track)},
                           {"ts", static_cast<double>(s.begin - first) / microsecond},
                           {"dur", static_cast<double>(s.end - s.begin) / microsecond}});
  return core::json::serialize(core::json::object{{"traceEvents", std::move(events)}});
}

}  // namespace rose::infer
