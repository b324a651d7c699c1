// Say where the time of a stream goes.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// Marks points of a stream, and afterwards says how long the device took between neighbours.
class Stopwatch {
 public:
  Stopwatch() = default;
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch();

  void start(Stream stream);
  /// What was enqueued since the mark before is called `name`.
  void mark(const char* name, Stream stream);
  /// Waits. Milliseconds by name, in the order in which names first came; the marks are forgotten.
  std::vector<std::pair<std::string, double>> milliseconds();

 private:
  void record(Stream stream);
  std::vector<void*> events_;  // reused
  std::vector<const char*> names_;
};

}  // namespace rose::kernels::gpu
