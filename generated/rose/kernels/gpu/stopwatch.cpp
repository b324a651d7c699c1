// Without CUDA there is no time to measure.

#include "rose/kernels/gpu/stopwatch.h"

namespace rose::kernels::gpu {

#ifndef ROSE_HAVE_CUDA
Stopwatch::~Stopwatch() = default;
void Stopwatch::start(Stream) {
  no_cuda("timing a stream");
}
void Stopwatch::mark(const char*, Stream) {
  no_cuda("timing a stream");
}
std::vector<std::pair<std::string, double>> Stopwatch::milliseconds() {
  no_cuda("timing a stream");
}
#endif

}  // namespace rose::kernels::gpu
