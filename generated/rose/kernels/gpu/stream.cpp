// Refuse what no kernel should see.

#include "rose/kernels/gpu/stream.h"

#include <fmt/format.h>

#include "rose/core/error.h"

namespace rose::kernels::gpu {

void no_cuda(std::string_view operation) {
  throw core::Error(core::Code::unsupported,
                    fmt::format("{} on a GPU: this build has no CUDA code", operation))
      .hint(
          "configure with `cmake --preset cuda`; it needs the CUDA Toolkit 13 (nvcc on the PATH)");
}

void bad_argument(std::string_view argument, const std::string& message) {
  throw core::Error(core::Code::invalid_argument, message).in(std::string(argument));
}

void check_matrix(const Matrix& matrix, std::string_view argument) {
  if (matrix.rows < 0 || matrix.cols < 0) {
    bad_argument(argument, fmt::format("a matrix of {} by {}", matrix.rows, matrix.cols));
  }
  if (!is_plain(matrix.dtype)) {
    bad_argument(argument, fmt::format("elements of type {}, where plain numbers are needed",
                                       info(matrix.dtype).name));
  }
  if (matrix.stride != 0 && matrix.stride < matrix.cols) {
    bad_argument(argument,
                 fmt::format("rows of {} elements, {} apart", matrix.cols, matrix.stride));
  }
  if (matrix.empty()) return;
  if (matrix.data == nullptr) bad_argument(argument, "no memory");
  const auto element = static_cast<std::uintptr_t>(info(matrix.dtype).block_bytes);
  if (reinterpret_cast<std::uintptr_t>(matrix.data) % element != 0) {
    bad_argument(argument, fmt::format("the address is not a multiple of {} bytes", element));
  }
}

void check_matrix(const Matrix& matrix, std::string_view argument, std::int64_t rows,
                  std::int64_t cols, DType dtype) {
  check_matrix(matrix, argument);
  if (matrix.rows != rows || matrix.cols != cols) {
    bad_argument(argument, fmt::format("{} by {}, where {} by {} is needed", matrix.rows,
                                       matrix.cols, rows, cols));
  }
  if (matrix.dtype != dtype) {
    bad_argument(argument, fmt::format("elements of type {}, where {} is needed",
                                       info(matrix.dtype).name, info(dtype).name));
  }
}

void check_workspace(const Workspace& workspace, std::size_t bytes) {
  if (bytes == 0) return;
  if (workspace.data == nullptr || workspace.bytes < bytes) {
    throw core::Error(
        core::Code::resource_exhausted,
        fmt::format("a workspace of {} bytes, where {} are needed", workspace.bytes, bytes))
        .in("workspace");
  }
  constexpr std::uintptr_t alignment = 256;
  if (reinterpret_cast<std::uintptr_t>(workspace.data) % alignment != 0) {
    bad_argument("workspace", fmt::format("the address is not a multiple of {} bytes", alignment));
  }
}

#ifndef ROSE_HAVE_CUDA
bool available() {
  return false;
}
void synchronize(Stream) {
  no_cuda("waiting for a stream");
}
#endif

}  // namespace rose::kernels::gpu
