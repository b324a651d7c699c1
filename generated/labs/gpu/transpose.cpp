// A build without CUDA has an empty ladder.

#include "labs/gpu/transpose.h"

namespace rose::labs {

#ifndef ROSE_HAVE_CUDA
Rungs<Transpose> transpose_ladder() {
  return {};
}
#endif

}  // namespace rose::labs
