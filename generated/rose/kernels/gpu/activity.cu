// Ask what the device did, through CUPTI.

#include "rose/kernels/gpu/activity.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>

namespace rose::kernels::gpu {
namespace {

/// What the library brought.
struct Collected {
  std::mutex mutex;
  std::vector<Activity> activities;
  std::int64_t offset = 0;  // from its clock to the system's
};
Collected& collected() {
  static Collected one;
  return one;
}

// Open the library once.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
  decltype(&cuptiGetTimestamp) now = nullptr;
  bool there = false;

  Cupti() {
    void* library = dlopen("libcupti.so.13", RTLD_NOW);
    if (library == nullptr) library = dlopen("libcupti.so", RTLD_NOW);
    if (library == nullptr) return;
    there = find(library, "cuptiActivityRegisterCallbacks", register_callbacks) &&
            find(library, "cuptiActivityEnable", enable) &&
            find(library, "cuptiActivityDisable", disable) &&
            find(library, "cuptiActivityFlushAll", flush) &&
            find(library, "cuptiActivityGetNextRecord", next) &&
            find(library, "cuptiGetTimestamp", now);
  }
  template <class F>
  static bool find(void* library, const char* name, F& to) {
    to = reinterpret_cast<F>(dlsym(library, name));
    return to != nullptr;
  }
};
const Cupti& cupti() {
  static const Cupti one;
  return one;
}

// Give it room, and read what it wrote.
std::string readable(const char* name) {
  if (name == nullptr) return "kernel";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

void CUPTIAPI give_room(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most) {
  constexpr std::size_t size = std::size_t{1} << 20, alignment = 8;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(alignment, size));
  *bytes = *buffer == nullptr ? 0 : size;
  *most = 0;  // as many as fit
}

void keep(const CUpti_Activity* record) {
  Collected& all = collected();
  const auto add = [&](std::string name, std::uint64_t begin, std::uint64_t end) {
    all.activities.push_back({std::move(name), static_cast<std::int64_t>(begin) + all.offset,
                              static_cast<std::int64_t>(end) + all.offset});
  };
  if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    const auto* const kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    add(readable(kernel->name), kernel->start, kernel->end);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    const auto* const copy = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
    add("copy of " + std::to_string(copy->bytes) + " bytes", copy->start, copy->end);
  } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    const auto* const fill = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
    add("fill of " + std::to_string(fill->bytes) + " bytes", fill->start, fill->end);
  }
}

void CUPTIAPI take_buffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                          std::size_t /*size*/, std::size_t used) {
  const std::scoped_lock lock(collected().mutex);
  CUpti_Activity* record = nullptr;
  while (used > 0 && cupti().next(buffer, used, &record) == CUPTI_SUCCESS) keep(record);
  std::free(buffer);
}

}  // namespace

// Begin, end.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

bool start_activities() {
  const Cupti& library = cupti();
  if (!library.there || library.register_callbacks(give_room, take_buffer) != CUPTI_SUCCESS)
    return false;
  std::uint64_t now = 0;
  if (library.now(&now) != CUPTI_SUCCESS) return false;
  const std::chrono::nanoseconds system = std::chrono::system_clock::now().time_since_epoch();
  {
    const std::scoped_lock lock(collected().mutex);
    collected().activities.clear();
    collected().offset = system.count() - static_cast<std::int64_t>(now);
  }
  bool all = true;
  for (const CUpti_ActivityKind kind : kKinds) all = library.enable(kind) == CUPTI_SUCCESS && all;
  return all;
}

std::vector<Activity> stop_activities() {
  const Cupti& library = cupti();
  if (!library.there) return {};
  for (const CUpti_ActivityKind kind : kKinds) library.disable(kind);
  library.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const std::scoped_lock lock(collected().mutex);
  return std::exchange(collected().activities, {});
}

}  // namespace rose::kernels::gpu

#else  // a toolkit without CUPTI
namespace rose::kernels::gpu {

bool start_activities() {
  return false;
}
std::vector<Activity> stop_activities() {
  return {};
}

}  // namespace rose::kernels::gpu
#endif
