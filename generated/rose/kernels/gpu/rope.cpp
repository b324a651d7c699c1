// Check shapes, then launch.

#include "rose/kernels/gpu/rope.h"

namespace rose::kernels::gpu {

void launch_rope_table(const std::int32_t*, std::int64_t, const float*, std::int64_t, float, float*,
                       float*, Stream);
void launch_rope(const Matrix&, std::int64_t, const float*, const float*, RopePairing, bool,
                 Stream);

void rope_table(const std::int32_t* positions, std::int64_t tokens, const float* inv_freq,
                std::int64_t pairs, [[maybe_unused]] float scale, float* cos, float* sin,
                [[maybe_unused]] Stream stream) {
  if (tokens < 0) bad_argument("tokens", "it is negative");
  if (pairs < 0) bad_argument("pairs", "it is negative");
  if (tokens == 0 || pairs == 0) return;
  if (positions == nullptr || inv_freq == nullptr) bad_argument("positions", "no memory");
  if (cos == nullptr || sin == nullptr) bad_argument("cos", "no memory");
#ifdef ROSE_HAVE_CUDA
  launch_rope_table(positions, tokens, inv_freq, pairs, scale, cos, sin, stream);
#else
  no_cuda("rope_table");
#endif
}

void rope(const Matrix& x, std::int64_t head_dim, const float* cos, const float* sin,
          [[maybe_unused]] RopePairing pairing, [[maybe_unused]] bool inverse,
          [[maybe_unused]] Stream stream) {
  check_matrix(x, "x");
  if (!is_activation(x.dtype)) bad_argument("x", "f32, bf16 or f16 is needed");
  if (head_dim <= 0 || head_dim % 2 != 0)
    bad_argument("head_dim", "a positive even number is needed");
  if (x.cols % head_dim != 0) bad_argument("x", "its width is not a whole number of heads");
  if (x.empty()) return;
  if (cos == nullptr || sin == nullptr) bad_argument("cos", "no memory");
#ifdef ROSE_HAVE_CUDA
  launch_rope(x, head_dim, cos, sin, pairing, inverse, stream);
#else
  no_cuda("rope");
#endif
}

}  // namespace rose::kernels::gpu
