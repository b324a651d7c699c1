// Pack, unpack, multiply.

#include "rose/kernels/packed_torch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <vector>

#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {

using gpu::WeightFormat;

std::int64_t PackedTensor::cols() const {
  return data.size(1) * (format == WeightFormat::int4 ? 2 : 1);
}

PackedTensor pack_weight(const at::Tensor& w, WeightFormat format, std::int64_t group) {
  if (w.dim() != 2) gpu::bad_argument("w", "a matrix is needed");
  const std::int64_t n = w.size(0), k = w.size(1), size = group == 0 ? k : group;
  if (size <= 0 || k % size != 0) gpu::bad_argument("group", "columns are whole groups");
  constexpr double most_int8 = 127, most_int4 = 7, most_fp8 = 448, least = 1e-10;
  const double most = format == WeightFormat::int8   ? most_int8
                      : format == WeightFormat::int4 ? most_int4
                                                     : most_fp8;
  const at::Tensor grouped = w.to(at::kFloat).reshape({n, k / size, size});
  const at::Tensor scales = grouped.abs().amax(2).clamp_min(least).div(most);
  const at::Tensor q = grouped.div(scales.unsqueeze(2)).reshape({n, k});
  PackedTensor packed{{}, scales.contiguous(), format, group};
  if (format == WeightFormat::fp8_e4m3) {
    packed.data = q.to(at::kFloat8_e4m3fn).view(at::kByte);
  } else if (format == WeightFormat::int8) {
    packed.data = q.round().to(at::kChar).view(at::kByte);
  } else {
    constexpr int shift = 8, high = 16;
    const at::Tensor pairs = q.round().add(shift).to(at::kByte).reshape({n, k / 2, 2});
    packed.data = pairs.select(2, 0).add(pairs.select(2, 1).mul(high)).contiguous();
  }
  return packed;
}

// What the bits stand for.
at::Tensor unpack_weight(const PackedTensor& w) {
  const std::int64_t n = w.rows(), k = w.cols(), size = w.group == 0 ? k : w.group;
  at::Tensor q;
  if (w.format == WeightFormat::fp8_e4m3) {
    q = w.data.view(at::kFloat8_e4m3fn).to(at::kFloat);
  } else if (w.format == WeightFormat::int8) {
    q = w.data.view(at::kChar).to(at::kFloat);
  } else {
    constexpr int half = 4, low = 15, shift = 8;
    q = at::stack({w.data.bitwise_and(low), w.data.bitwise_right_shift(half)}, 2)
            .reshape({n, k})
            .to(at::kFloat)
            .sub(shift);
  }
  const at::Tensor scales = w.scales.repeat_interleave(size, 1).narrow(1, 0, k);
  return q.mul(scales).to(at::kBFloat16);
}

// Multiply by it, and send back what passes through.
namespace {

at::Tensor multiply_packed(const at::Tensor& x, const PackedTensor& w,
                           const std::optional<at::Tensor>& bias) {
  const Site site(x, "x");
  if (x.dim() == 0) gpu::bad_argument("x", "rows are needed");
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = w.rows();
  at::Tensor y = x.new_empty(sizes);
  if (!site.on_gpu()) {
    const at::Tensor plain = unpack_weight(w);
    kernels::linear(site.floats(x, "x"), x.numel() / std::max<std::int64_t>(1, x.size(-1)),
                    site.weight(plain, "w"), bias ? site.floats(*bias, "bias").data() : nullptr,
                    site.floats(y, "y"), core::default_pool());
    return y;
  }
  const std::int64_t group = w.group == 0 ? w.cols() : w.group;
  if (w.scales.numel() != w.rows() * ((w.cols() + group - 1) / group)) {
    gpu::bad_argument("scales", "a scale for every group of every row is needed");
  }
  if (bias && bias->numel() != w.rows()) gpu::bad_argument("bias", "it is not as long as y");
  gpu::linear_packed(site.matrix(x, "x"),
                     {.data = site.matrix(w.data, "w").data,
                      .format = w.format,
                      .rows = w.rows(),
                      .cols = w.cols(),
                      .scales = site.floats(w.scales, "scales").data(),
                      .group = w.group},
                     bias ? site.matrix(*bias, "bias").data : nullptr, site.matrix(y, "y"),
                     site.stream());
  return y;
}

}  // namespace

at::Tensor linear_packed(const at::Tensor& x, const PackedTensor& w,
                         const std::optional<at::Tensor>& bias) {
  if (bias) refuse_gradient("linear_packed with a bias that learns", {*bias});
  return record("linear_packed", {x}, [&] {
    return Step{{multiply_packed(x, w, bias)},
                {w.data, w.scales},
                [format = w.format, group = w.group](const Arrived& arrived) {
                  const at::Tensor& dy = arrived.gradients[0];
                  const at::Tensor plain =
                      unpack_weight({arrived.saved[0], arrived.saved[1], format, group});
                  return Tensors{dy.matmul(plain.to(dy.scalar_type()))};
                }};
  })[0];
}

}  // namespace rose::kernels::autograd
