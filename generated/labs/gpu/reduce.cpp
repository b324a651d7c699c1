// Without CUDA there is nothing to climb.

#include "labs/gpu/reduce.h"

namespace rose::labs {

std::size_t reduce_workspace(std::int64_t count) {
  if (count < 0) gpu::bad_argument("count", "it is negative");
  // The first rungs leave a number per block of 256, twice in turn; the library asks for less than the constant.
  return static_cast<std::size_t>(2 * (count / 256 + 2)) * sizeof(float) + (std::size_t{1} << 20);
}

#ifndef ROSE_HAVE_CUDA
Rungs<Reduce> reduce_ladder() {
  return {};
}
Reduce* reduce_library() {
  return nullptr;
}
#endif

}  // namespace rose::labs
