// Record events, and subtract.

#include <algorithm>

#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/stopwatch.h"

namespace rose::kernels::gpu {

Stopwatch::~Stopwatch() {
  for (void* event : events_) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void Stopwatch::record(Stream stream) {
  const std::size_t at = names_.size();
  if (at == events_.size()) {
    cudaEvent_t event = nullptr;
    ROSE_CUDA_CHECK(cudaEventCreate(&event));
    events_.push_back(event);
  }
  ROSE_CUDA_CHECK(cudaEventRecord(static_cast<cudaEvent_t>(events_[at]), to_cuda(stream)));
}

void Stopwatch::start(Stream stream) {
  names_.clear();
  record(stream);
  names_.push_back("");
}

void Stopwatch::mark(const char* name, Stream stream) {
  record(stream);
  names_.push_back(name);
}

std::vector<std::pair<std::string, double>> Stopwatch::milliseconds() {
  std::vector<std::pair<std::string, double>> times;
  if (names_.size() < 2) return times;
  const auto event = [&](std::size_t i) { return static_cast<cudaEvent_t>(events_[i]); };
  ROSE_CUDA_CHECK(cudaEventSynchronize(event(names_.size() - 1)));
  for (std::size_t i = 1; i < names_.size(); ++i) {
    float ms = 0;
    ROSE_CUDA_CHECK(cudaEventElapsedTime(&ms, event(i - 1), event(i)));
    const std::string name = names_[i];
    const auto found = std::find_if(times.begin(), times.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (found == times.end()) {
      times.emplace_back(name, ms);
    } else {
      found->second += ms;
    }
  }
  names_.clear();
  return times;
}

}  // namespace rose::kernels::gpu
