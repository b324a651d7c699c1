// Refuse what a rung cannot do.

#include "labs/gpu/layernorm_ladder.h"

namespace rose::labs {

void check_layernorm(const gpu::Matrix& x, const gpu::Matrix& y, std::int64_t most) {
  gpu::check_matrix(x, "x", x.rows, x.cols, kernels::DType::bf16);
  gpu::check_matrix(y, "y", x.rows, x.cols, kernels::DType::bf16);
  constexpr std::int64_t group = 8, wide = 16;
  const auto check = [&](const gpu::Matrix& m, const char* name) {
    if (m.cols % group != 0 || m.cols > most)
      gpu::bad_argument(name, "this rung needs a multiple of eight columns, and not so many");
    if (m.row_stride() != m.cols || reinterpret_cast<std::uintptr_t>(m.data) % wide != 0)
      gpu::bad_argument(name, "this rung needs contiguous rows at multiples of 16 bytes");
  };
  check(x, "x"), check(y, "y");
}

#ifndef ROSE_HAVE_CUDA
Rungs<LayernormRows> layernorm_ladder() {
  return {};
}
#endif

}  // namespace rose::labs
