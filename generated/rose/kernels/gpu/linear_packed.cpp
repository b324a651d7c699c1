// Check what is packed and what is grouped.

#include "rose/kernels/gpu/linear_packed.h"

#include <fmt/format.h>

namespace rose::kernels::gpu {

#ifdef ROSE_HAVE_CUDA
void launch_packed(const Matrix& x, const PackedWeight& w, const void* bias, const Matrix& y,
                   Stream stream);
void launch_adapters(const Matrix& x, const Adapters& adapters, const Matrix& y,
                     Workspace workspace, Stream stream);
#endif

namespace {

constexpr std::int64_t wide = 16;  // bytes

void check_rows_aligned(const Matrix& matrix, std::string_view argument) {
  if (matrix.empty()) return;
  const std::int64_t step = matrix.row_stride() * info(matrix.dtype).block_bytes;
  if (reinterpret_cast<std::uintptr_t>(matrix.data) % wide != 0 ||
      (matrix.rows > 1 && step % wide != 0)) {
    bad_argument(argument, "rows do not begin at multiples of 16 bytes");
  }
}

void check_packed(const PackedWeight& w) {
  const std::int64_t unit = w.format == WeightFormat::int4 ? 32 : 16;
  if (w.rows < 0 || w.cols < 0 || w.cols % unit != 0) {
    bad_argument(
        "w", fmt::format("{} by {}: the columns must be a multiple of {}", w.rows, w.cols, unit));
  }
  constexpr std::int64_t smallest = 32;
  if (w.group < 0 || w.group % smallest != 0) {
    bad_argument("w.group", fmt::format("{} is no multiple of {}", w.group, smallest));
  }
  if (w.rows == 0 || w.cols == 0) return;
  if (w.data == nullptr || reinterpret_cast<std::uintptr_t>(w.data) % wide != 0) {
    bad_argument("w", "no memory, or not at a multiple of 16 bytes");
  }
  if (w.scales == nullptr) bad_argument("w.scales", "no memory");
}

}  // namespace

void linear_packed(const Matrix& x, const PackedWeight& w, const void* bias, const Matrix& y,
                   Stream stream) {
  check_packed(w);
  check_matrix(x, "x", x.rows, w.cols, DType::bf16);
  check_matrix(y, "y", x.rows, w.rows, DType::bf16);
  check_rows_aligned(x, "x");
  if (y.empty()) return;
#ifdef ROSE_HAVE_CUDA
  launch_packed(x, w, bias, y, stream);
#else
  static_cast<void>(bias);
  static_cast<void>(stream);
  no_cuda("linear_packed");
#endif
}

std::size_t adapters_workspace(std::int64_t m, std::int64_t rank) {
  constexpr std::int64_t bf16_bytes = 2;
  return static_cast<std::size_t>(m * rank * bf16_bytes);
}

void add_adapters(const Matrix& x, const Adapters& adapters, const Matrix& y, Workspace workspace,
                  Stream stream) {
  check_matrix(x, "x", x.rows, x.cols, DType::bf16);
  check_matrix(y, "y", x.rows, y.cols, DType::bf16);
  check_rows_aligned(x, "x");
  constexpr std::int64_t unit = 8;
  if (x.cols % unit != 0)
    bad_argument("x", fmt::format("{} columns are no multiple of {}", x.cols, unit));
  if (adapters.count < 0) bad_argument("adapters.count", fmt::format("{}", adapters.count));
  if (adapters.rank < 0 || adapters.rank % unit != 0) {
    bad_argument("adapters.rank", fmt::format("{} is no multiple of {}", adapters.rank, unit));
  }
  if (adapters.count == 0 || adapters.rank == 0 || y.empty()) return;
  if (adapters.a == nullptr) bad_argument("adapters.a", "no memory");
  if (adapters.b == nullptr) bad_argument("adapters.b", "no memory");
  if (adapters.scales == nullptr) bad_argument("adapters.scales", "no memory");
  if (adapters.offsets == nullptr) bad_argument("adapters.offsets", "no memory");
  check_workspace(workspace, adapters_workspace(x.rows, adapters.rank));
#ifdef ROSE_HAVE_CUDA
  launch_adapters(x, adapters, y, workspace, stream);
#else
  static_cast<void>(stream);
  no_cuda("add_adapters");
#endif
}

}  // namespace rose::kernels::gpu
