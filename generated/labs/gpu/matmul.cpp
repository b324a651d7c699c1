// Refuse what a rung cannot do.

#include "labs/gpu/matmul.h"

#include <string>

namespace rose::labs {

void check_matmul(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t unit) {
  const auto check = [](const char* name, std::int64_t size, std::int64_t multiple) {
    constexpr std::int64_t most = std::int64_t{1} << 20;
    if (size < 0 || size > most) gpu::bad_argument(name, "0 to 2^20");
    if (size % multiple != 0)
      gpu::bad_argument(name, "this rung needs a multiple of " + std::to_string(multiple));
  };
  check("m", m, 1);
  check("n", n, unit);
  check("k", k, unit);
}

#ifndef ROSE_HAVE_CUDA
Rungs<Matmul> matmul_ladder() {
  return {};
}
Rungs<Matmul> matmul_tiles() {
  return {};
}
void matmul_split(const float*, const float*, float*, std::int64_t, std::int64_t, std::int64_t,
                  std::int64_t, gpu::Workspace, gpu::Stream) {
  gpu::no_cuda("matmul_split");
}
struct MatmulLibrary::State {};
MatmulLibrary::MatmulLibrary(std::int64_t, std::int64_t, std::int64_t, int) {
  gpu::no_cuda("cuBLASLt");
}
int MatmulLibrary::proposals() const {
  return 0;
}
int MatmulLibrary::version() {
  return 0;
}
void MatmulLibrary::launch(int, const float*, const float*, float*, gpu::Workspace,
                           gpu::Stream) const {}
#endif

}  // namespace rose::labs
