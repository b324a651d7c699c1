// Say what the self-test found.

#include "rose/kernels/gpu/self_test.h"

#include <fmt/format.h>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

bool SelfTest::canonical() const {
  for (const BitCase& one : cases) {
    if (one.differing != 0) return false;
  }
  return !cases.empty();
}

std::string SelfTest::summary() const {
  std::int64_t outputs = 0, differing = 0;
  std::string first;
  for (const BitCase& one : cases) {
    outputs += one.outputs;
    differing += one.differing;
    if (one.differing != 0 && first.empty()) first = one.path + ", " + one.shape;
  }
  if (differing == 0) {
    return fmt::format("canonical: {} comparisons of {} outputs, none differs", cases.size(),
                       outputs);
  }
  return fmt::format("not canonical: {} of {} outputs differ, first in {}", differing, outputs,
                     first);
}

#ifndef ROSE_HAVE_CUDA
SelfTest self_test(Extent) {
  no_cuda("the self-test");
}
#endif

}  // namespace rose::kernels::gpu
