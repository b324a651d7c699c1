// Multiply tensors by a weight of few bits.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "rose/kernels/gpu/linear_packed.h"

namespace rose::kernels::autograd {

/// A weight [N, K] as gpu::PackedWeight has it.
struct PackedTensor {
  at::Tensor data;    ///< uint8 [N, K], or [N, K / 2] for int4
  at::Tensor scales;  ///< f32 [N, ceil(K / group)]
  gpu::WeightFormat format = gpu::WeightFormat::int8;
  std::int64_t group = 0;  ///< 0: one scale for each row

  std::int64_t rows() const { return data.size(0); }
  std::int64_t cols() const;
};

/// The nearest numbers of the format; the largest of a group becomes the largest of the format. K is a multiple of the group.
PackedTensor pack_weight(const at::Tensor& w, gpu::WeightFormat format, std::int64_t group = 0);
/// bf16 [N, K].
at::Tensor unpack_weight(const PackedTensor& w);

/// y[..., N] = x[..., K] w^T + bias. f32 on a CPU, bf16 on a GPU. x has a gradient, weight and bias are constants.
at::Tensor linear_packed(const at::Tensor& x, const PackedTensor& w,
                         const std::optional<at::Tensor>& bias = {});

}  // namespace rose::kernels::autograd
