// Refuse what a rung cannot do.

#include "labs/gpu/swiglu_ladder.h"

namespace rose::labs {

void check_swiglu(std::int64_t count, std::int64_t unit) {
  if (count < 0) gpu::bad_argument("count", "it is negative");
  if (count % unit != 0) gpu::bad_argument("count", "this rung needs whole groups of eight");
}

#ifndef ROSE_HAVE_CUDA
Rungs<Swiglu> swiglu_ladder() {
  return {};
}
#endif

}  // namespace rose::labs
