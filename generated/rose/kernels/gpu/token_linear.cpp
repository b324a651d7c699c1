// Check what the kernel is given.

#include "rose/kernels/gpu/token_linear.h"

#include <fmt/format.h>

#include "rose/core/error.h"

namespace rose::kernels::gpu {

void launch_token_linear(const LinearShape& shape, const TokenLinear& a, Stream stream, bool early);
bool token_linear_device_fits(const LinearShape& shape);

bool token_linear_fits(const LinearShape& shape) {
  constexpr std::int64_t most_rows = 8, tile = 8, step = 128, longest = 8192;
  const bool plain = shape.in == DType::bf16 && shape.out == DType::bf16 && !shape.scaled &&
                     !shape.residual && shape.aligned;
  if (!plain || shape.m < 1 || shape.m > most_rows || shape.n < tile || shape.n % tile != 0 ||
      shape.k < step || shape.k % step != 0 || shape.k > longest) {
    return false;
  }
#ifdef ROSE_HAVE_CUDA
  return token_linear_device_fits(shape);
#else
  return false;
#endif
}

// Check the arguments.
void token_linear(const LinearShape& shape, const TokenLinear& a, [[maybe_unused]] Stream stream) {
  check_linear(shape);
  check_matrix(a.x, "x", shape.m, shape.k, DType::bf16);
  check_matrix(a.w, "w", shape.weight_rows(), shape.k, DType::bf16);
  check_matrix(a.y, "y", shape.m, shape.n, DType::bf16);
  if (shape.bias && a.bias == nullptr) bad_argument("bias", "no memory");
  if (a.norm.data != nullptr) {
    check_matrix(a.norm, "norm", 1, shape.k, a.norm.dtype);
    if (a.norm.dtype != DType::f32 && a.norm.dtype != DType::bf16) {
      bad_argument("norm", "f32 or bf16 is needed");
    }
  }
  if (a.add.data != nullptr) {
    check_matrix(a.add, "add", shape.m, shape.k, DType::bf16);
    check_matrix(a.sum, "sum", shape.m, shape.k, DType::bf16);
    if (a.norm.data == nullptr) bad_argument("add", "a sum is for a norm");
    if (a.sum.data == a.x.data || a.sum.data == a.add.data) {
      bad_argument("sum", "other blocks still read x and add: it needs memory of its own");
    }
  }
  constexpr std::uintptr_t wide = 16;
  for (const auto& [matrix, name] : {std::pair(&a.x, "x"), {&a.w, "w"}, {&a.add, "add"}}) {
    const auto bytes = static_cast<std::uintptr_t>(matrix->row_stride()) * 2;
    if (reinterpret_cast<std::uintptr_t>(matrix->data) % wide != 0 || bytes % wide != 0) {
      bad_argument(name, "rows must begin at multiples of 16 bytes");
    }
  }
#ifdef ROSE_HAVE_CUDA
  launch_token_linear(shape, a, stream, true);
#else
  no_cuda("token_linear");
#endif
}

}  // namespace rose::kernels::gpu
