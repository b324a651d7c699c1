// See a tensor as the plain memory that kernels take.

#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rose/kernels/gpu/stream.h"
#include "rose/kernels/view.h"

namespace rose::kernels {

/// The type of the elements. Throws core::Error (unsupported) for one that kernels do not know.
DType dtype_of(const at::Tensor& tensor, std::string_view argument);

/// Whether the tensor is a matrix when its last `columns` dimensions make a row: a row has no gaps, and rows are equally far
/// apart and do not overlap.
bool is_matrix(const at::Tensor& tensor, std::int64_t columns = 1);

/// That matrix; it shares the memory. Throws core::Error (invalid_argument) naming the argument where is_matrix is false.
gpu::Matrix matrix_of(const at::Tensor& tensor, std::string_view argument,
                      std::int64_t columns = 1);

// Decide once where a call runs.
class Site {
 public:
  /// The tensor's device, which is made current until this object ends.
  /// Throws core::Error (unsupported) unless that is the CPU or a CUDA device.
  Site(const at::Tensor& tensor, std::string_view argument);

  bool on_gpu() const { return on_gpu_; }
  /// The stream that LibTorch uses on this device at the moment.
  gpu::Stream stream() const;

  // Views of tensors. Each throws core::Error (invalid_argument) naming the argument when the tensor is on another device, of another
  // type, or laid out in another way.
  gpu::Matrix matrix(const at::Tensor& tensor, std::string_view argument,
                     std::int64_t columns = 1) const;
  /// fp32 without gaps.
  std::span<float> floats(const at::Tensor& tensor, std::string_view argument) const;
  /// int32 without gaps: ids, targets.
  std::span<const std::int32_t> integers(const at::Tensor& tensor, std::string_view argument) const;
  /// [N, K] without gaps, of any plain type.
  MatrixView weight(const at::Tensor& tensor, std::string_view argument) const;

  /// What arrives as a gradient, in a layout that kernels read: itself, or a copy.
  at::Tensor readable(const at::Tensor& gradient, std::int64_t columns = 1) const;
  /// So many bytes that live as long as the tensor.
  at::Tensor scratch(std::size_t bytes) const;

 private:
  void check_here(const at::Tensor& tensor, std::string_view argument) const;
  void check_dense(const at::Tensor& tensor, std::string_view argument, DType dtype) const;

  at::Tensor tensor_;
  bool on_gpu_ = false;
  c10::OptionalDeviceGuard current_;
};

gpu::Workspace workspace_of(const at::Tensor& scratch);

}  // namespace rose::kernels
