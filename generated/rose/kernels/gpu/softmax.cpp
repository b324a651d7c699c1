// Check, then launch.

#include "rose/kernels/gpu/softmax.h"

namespace rose::kernels::gpu {

void launch_softmax(const Matrix& x, const Matrix& y, Stream stream);
void launch_softmax_backward(const Matrix& y, const Matrix& dy, const Matrix& dx, Stream stream);

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

void softmax_backward(const Matrix& y, const Matrix& dy, const Matrix& dx,
                      [[maybe_unused]] Stream stream) {
  check_matrix(y, "y");
  if (!is_activation(y.dtype)) bad_argument("y", "f32, bf16 or f16 is needed");
  check_matrix(dy, "dy", y.rows, y.cols, y.dtype);
  check_matrix(dx, "dx", y.rows, y.cols, y.dtype);
  constexpr std::int64_t most_rows = 0x7fffffff;
  if (y.rows > most_rows) bad_argument("y", "too many rows");
  if (y.empty()) return;
#ifdef ROSE_HAVE_CUDA
  launch_softmax_backward(y, dy, dx, stream);
#else
  no_cuda("softmax_backward");
#endif
}

}  // namespace rose::kernels::gpu
