// Streams, matrices and workspaces: what every GPU operation takes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rose/kernels/dtype.h"

/// The kernels that run on a GPU. Calls enqueue and return; pointers are to device memory unless a comment says host.
namespace rose::kernels::gpu {

/// A queue on the device: a cudaStream_t. Null is the default stream.
struct Stream {
  void* handle = nullptr;
};

/// A matrix in device memory, row by row.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::bf16;
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  ///< elements from one row to the next; 0 means cols

  std::int64_t row_stride() const { return stride == 0 ? cols : stride; }
  bool empty() const { return rows == 0 || cols == 0; }
};

/// Memory that an operation may use while it runs, and forgets after.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// Whether a CUDA device answers. False, too, in a build without CUDA. Throws nothing.
bool available();

/// Throws core::Error (unsupported): this build has no CUDA code for the operation.
[[noreturn]] void no_cuda(std::string_view operation);

/// Waits until all that was put into the stream is done. Throws core::Error (internal) with what failed on the device.
void synchronize(Stream stream);

// Check arguments on the host.

/// Whether an operation on rows takes the type: f32, bf16 or f16.
constexpr bool is_activation(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

/// Throws core::Error (invalid_argument) naming `argument` unless sizes are not negative, the stride holds a row, and the pointer is
/// there (an empty matrix needs none) and aligned to its element.
void check_matrix(const Matrix& matrix, std::string_view argument);

/// check_matrix, and the shape and type must be these.
void check_matrix(const Matrix& matrix, std::string_view argument, std::int64_t rows,
                  std::int64_t cols, DType dtype);

/// Throws core::Error (invalid_argument): "ARGUMENT: MESSAGE".
[[noreturn]] void bad_argument(std::string_view argument, const std::string& message);

/// Throws core::Error (resource_exhausted) unless the workspace has `bytes` bytes, aligned to 256.
void check_workspace(const Workspace& workspace, std::size_t bytes);

}  // namespace rose::kernels::gpu
