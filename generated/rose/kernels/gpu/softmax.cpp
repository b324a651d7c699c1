// Check, then launch.

#include "rose/kernels/gpu/softmax.h"

namespace rose::kernels::gpu {

void launch_softmax(const Matrix& x, const Matrix& y, Stream stream);

void softmax(const Matrix& x, const Matrix& y, [[maybe_unused]] Stream stream) {
  check_matrix(x, "x");
  if (!is_activation(x.dtype)) bad_argument("x", "f32, bf16 or f16 is needed");
  check_matrix(y, "y", x.rows, x.cols, x.dtype);
  constexpr std::int64_t most_rows = 0x7fffffff;
  if (x.rows > most_rows) bad_argument("x", "too many rows");
  if (x.empty()) return;
#ifdef ROSE_HAVE_CUDA
  launch_softmax(x, y, stream);
#else
  no_cuda("softmax");
#endif
}

}  // namespace rose::kernels::gpu
