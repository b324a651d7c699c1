// Check on the host, then launch.

#include "rose/kernels/gpu/dropout.h"

namespace rose::kernels::gpu {

#ifdef ROSE_HAVE_CUDA
void launch_dropout(const Matrix&, const Dropout&, const Matrix&, Stream);
#define ROSE_LAUNCH(name, ...) launch_##name(__VA_ARGS__)
#else
#define ROSE_LAUNCH(name, ...) no_cuda(#name)
#endif

void dropout(const Matrix& x, const Dropout& how, const Matrix& out,
             [[maybe_unused]] Stream stream) {
  check_matrix(x, "x");
  if (!is_activation(x.dtype)) bad_argument("x", "f32, bf16 or f16 is needed");
  check_matrix(out, "out", x.rows, x.cols, x.dtype);
  if (!(how.rate >= 0 && how.rate < 1)) bad_argument("rate", "a share below 1 is needed");
  if (!x.empty()) ROSE_LAUNCH(dropout, x, how, out, stream);
}

}  // namespace rose::kernels::gpu
