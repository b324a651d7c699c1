// Plan, multiply, and go back with the library's products.

#include "rose/kernels/linear_torch.h"

#include <algorithm>
#include <vector>

#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/linear_backward.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

// Multiply on either device.
bool begins_aligned(const gpu::Matrix& m) {
  constexpr std::int64_t bytes = 16;
  return reinterpret_cast<std::uintptr_t>(m.data) % bytes == 0 &&
         m.row_stride() * info(m.dtype).block_bytes % bytes == 0;
}

at::Tensor multiply(const at::Tensor& x, const at::Tensor& w,
                    const std::optional<at::Tensor>& bias) {
  const Site site(x, "x");
  if (x.dim() == 0 || w.dim() != 2) gpu::bad_argument("w", "rows of x and a matrix are needed");
  if (bias && (bias->numel() != w.size(0) || bias->scalar_type() != x.scalar_type())) {
    gpu::bad_argument("bias", "one number of the type of x is needed for each row of w");
  }
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = w.size(0);
  at::Tensor y = x.new_empty(sizes);
  if (!site.on_gpu()) {
    kernels::linear(site.floats(x, "x"), x.numel() / std::max<std::int64_t>(1, x.size(-1)),
                    site.weight(w, "w"), bias ? site.floats(*bias, "bias").data() : nullptr,
                    site.floats(y, "y"), core::default_pool());
    return y;
  }
  const gpu::LinearArguments arguments{.x = site.matrix(x, "x"),
                                       .w = site.matrix(w, "w"),
                                       .bias = bias ? site.matrix(*bias, "bias").data : nullptr,
                                       .y = site.matrix(y, "y")};
  const gpu::Matrix &a = arguments.x, &b = arguments.w;
  const gpu::LinearPlan plan =
      gpu::plan_linear({.m = a.rows,
                        .n = b.rows,
                        .k = a.cols,
                        .in = a.dtype,
                        .out = a.dtype,
                        .bias = bias.has_value(),
                        .aligned = begins_aligned(a) && begins_aligned(b)});
  const at::Tensor scratch = site.scratch(plan.workspace_bytes);
  gpu::linear(plan, arguments, workspace_of(scratch), site.stream());
  return y;
}

// Give each input its gradient, if it wants one.
Tensors linear_backward(const Arrived& arrived) {
  const at::Tensor &x = arrived.saved[0], &w = arrived.saved[1];
  const Site site(x, "x");
  const at::Tensor dy = arrived.gradients[0].reshape({-1, w.size(0)}).contiguous();
  const std::int64_t m = dy.size(0);
  Tensors out(arrived.needed.size());
  const auto wanted = [&](std::size_t i) { return i < out.size() && arrived.needed[i]; };
  if (site.on_gpu()) {
    if (wanted(0)) out[0] = dy.matmul(w).view(x.sizes());
    if (wanted(1)) out[1] = dy.t().matmul(x.reshape({m, w.size(1)}));
    if (wanted(2)) out[2] = dy.sum(0);
    return out;
  }
  std::vector<float> packed;
  core::ThreadPool& pool = core::default_pool();
  if (wanted(0)) {
    out[0] = x.new_empty(x.sizes());
    const at::Tensor plain = w.to(at::kFloat);
    linear_backward_input(site.floats(dy, "dy"), m, site.weight(plain, "w"),
                          site.floats(out[0], "dx"), Into::overwrite, pool, packed);
  }
  if (wanted(1) || wanted(2)) {
    const at::Tensor dw = x.new_zeros(w.sizes()), db = x.new_zeros({w.size(0)});
    linear_backward_weight(site.floats(x, "x"), site.floats(dy, "dy"), m, site.floats(dw, "dw"),
                           site.floats(db, "db"), pool, packed);
    if (wanted(1)) out[1] = dw.to(w.scalar_type());
    if (wanted(2)) out[2] = db;
  }
  return out;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias) {
  Tensors inputs{x, w};
  if (bias) inputs.push_back(*bias);
  return record("linear", inputs, [&] {
    return Step{{multiply(x, w, bias)}, {x, w}, linear_backward};
  })[0];
}

}  // namespace rose::kernels::autograd
