// Refuse what has no plain form.

#include "rose/kernels/tensor_torch.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "rose/core/error.h"

namespace rose::kernels {

DType dtype_of(const at::Tensor& tensor, std::string_view argument) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::f32;
    case at::kHalf: return DType::f16;
    case at::kBFloat16: return DType::bf16;
    case at::kInt: return DType::i32;
    case at::kByte: return DType::u8;
    default: break;
  }
  throw core::Error(core::Code::unsupported,
                    fmt::format("elements of type {}", c10::toString(tensor.scalar_type())))
      .in(std::string(argument))
      .hint("kernels take float, half, bfloat16, int and uint8");
}

// Fold the dimensions into rows and columns.
namespace {

/// Folds dimensions [first, last) into one: its size, and its step where it has one.
struct Folded {
  std::int64_t size = 1, step = 0;
  bool regular = true;
};
Folded fold(const at::Tensor& tensor, std::int64_t first, std::int64_t last) {
  Folded folded;
  for (std::int64_t d = last; d-- > first;) {
    const std::int64_t size = tensor.size(d), step = tensor.stride(d);
    if (size == 1) continue;
    if (folded.size == 1) folded.step = step;
    folded.regular = folded.regular && step == folded.step * folded.size;
    folded.size *= size;
  }
  return folded;
}

std::optional<gpu::Matrix> as_matrix(const at::Tensor& tensor, std::int64_t columns, DType dtype) {
  const std::int64_t split = std::max<std::int64_t>(0, tensor.dim() - columns);
  const Folded row = fold(tensor, split, tensor.dim()), index = fold(tensor, 0, split);
  const bool dense = row.regular && (row.size == 1 || row.step == 1);
  const bool apart = index.regular && (index.size == 1 || index.step >= row.size);
  if (tensor.numel() > 0 && !(dense && apart)) return std::nullopt;
  const bool gaps = tensor.numel() > 0 && index.size > 1 && index.step != row.size;
  return gpu::Matrix{.data = tensor.data_ptr(),
                     .dtype = dtype,
                     .rows = index.size,
                     .cols = row.size,
                     .stride = gaps ? index.step : 0};
}

}  // namespace

bool is_matrix(const at::Tensor& tensor, std::int64_t columns) {
  return as_matrix(tensor, columns, DType::f32).has_value();
}

gpu::Matrix matrix_of(const at::Tensor& tensor, std::string_view argument, std::int64_t columns) {
  const auto matrix = as_matrix(tensor, columns, dtype_of(tensor, argument));
  if (matrix) return *matrix;
  throw core::Error(core::Code::invalid_argument,
                    fmt::format("sizes [{}] with strides [{}] are no matrix: the elements of a row "
                                "must be neighbours, and rows equally far apart",
                                fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", ")))
      .in(std::string(argument))
      .hint("contiguous() makes a copy that is one");
}

// Ask LibTorch for the device and its stream.
Site::Site(const at::Tensor& tensor, std::string_view argument)
    : tensor_(tensor), on_gpu_(tensor.is_cuda()) {
  if (tensor.is_cpu()) return;
  if (!on_gpu_) {
    throw core::Error(core::Code::unsupported,
                      fmt::format("a tensor on the device {}", tensor.device().str()))
        .in(std::string(argument))
        .hint("kernels run on cpu and cuda");
  }
  if (!c10::impl::hasDeviceGuardImpl(tensor.device().type())) gpu::no_cuda(argument);
  current_.reset_device(tensor.device());
}

gpu::Stream Site::stream() const {
  if (!on_gpu_) return {};
  const c10::impl::VirtualGuardImpl cuda(tensor_.device().type());
  return {cuda.getStream(tensor_.device()).native_handle()};
}

at::Tensor Site::scratch(std::size_t bytes) const {
  return tensor_.new_empty({static_cast<std::int64_t>(bytes)}, tensor_.options().dtype(at::kByte));
}

gpu::Workspace workspace_of(const at::Tensor& scratch) {
  return {scratch.data_ptr(), static_cast<std::size_t>(scratch.numel())};
}

// Check device, type and layout.
void Site::check_here(const at::Tensor& tensor, std::string_view argument) const {
  if (!tensor.defined()) gpu::bad_argument(argument, "no tensor");
  if (tensor.device() == tensor_.device()) return;
  gpu::bad_argument(argument, fmt::format("it is on {}, the others are on {}",
                                          tensor.device().str(), tensor_.device().str()));
}

void Site::check_dense(const at::Tensor& tensor, std::string_view argument, DType dtype) const {
  check_here(tensor, argument);
  const DType is = dtype_of(tensor, argument);
  if (is != dtype) {
    gpu::bad_argument(argument, fmt::format("elements of type {}, where {} is needed",
                                            info(is).name, info(dtype).name));
  }
  if (tensor.is_contiguous()) return;
  throw core::Error(core::Code::invalid_argument,
                    fmt::format("sizes [{}] with strides [{}] have gaps",
                                fmt::join(tensor.sizes(), ", "), fmt::join(tensor.strides(), ", ")))
      .in(std::string(argument))
      .hint("contiguous() makes a copy without gaps");
}

// Hand out memory only after it was checked.
gpu::Matrix Site::matrix(const at::Tensor& tensor, std::string_view argument,
                         std::int64_t columns) const {
  check_here(tensor, argument);
  return matrix_of(tensor, argument, columns);
}

std::span<float> Site::floats(const at::Tensor& tensor, std::string_view argument) const {
  check_dense(tensor, argument, DType::f32);
  return {static_cast<float*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

std::span<const std::int32_t> Site::integers(const at::Tensor& tensor,
                                             std::string_view argument) const {
  check_dense(tensor, argument, DType::i32);
  return {static_cast<const std::int32_t*>(tensor.const_data_ptr()),
          static_cast<std::size_t>(tensor.numel())};
}

MatrixView Site::weight(const at::Tensor& tensor, std::string_view argument) const {
  if (tensor.dim() != 2) gpu::bad_argument(argument, "a matrix is needed");
  check_dense(tensor, argument, dtype_of(tensor, argument));
  return {.data = tensor.const_data_ptr(),
          .dtype = dtype_of(tensor, argument),
          .rows = tensor.size(0),
          .cols = tensor.size(1)};
}

at::Tensor Site::readable(const at::Tensor& gradient, std::int64_t columns) const {
  return on_gpu_ && is_matrix(gradient, columns) ? gradient : gradient.contiguous();
}

}  // namespace rose::kernels
