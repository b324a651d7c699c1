// Keep a number per row.

#include "rose/kernels/norm_torch.h"

#include <algorithm>
#include <cstdint>

#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/norm.h"
#include "rose/kernels/norm_backward.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

/// x [..., C] as the kernels see it.
struct Rows {
  explicit Rows(const at::Tensor& x) : heads(is_matrix(x) ? 1 : 2) {
    if (x.dim() == 0) gpu::bad_argument("x", "rows are needed");
    width = x.size(-1);
    count = x.numel() / std::max<std::int64_t>(1, width);
  }
  std::int64_t
      heads;  ///< how many dimensions make a row of the matrix: 2 where only heads side by side do
  std::int64_t width = 0, count = 0;
};

at::Tensor row_numbers(const at::Tensor& x, const Rows& rows) {
  return x.new_empty({rows.count}, x.options().dtype(at::kFloat));
}

at::Tensor zeros_for(const at::Tensor& weight) {
  return weight.new_zeros(weight.sizes(), weight.options().dtype(at::kFloat));
}

// Go back through the norm, and past it.

/// dx and dweight. What flows past the norm, when something does, is added to dx.
Tensors rmsnorm_pull(const Tensors& saved, const at::Tensor& gradient, const at::Tensor& past) {
  const at::Tensor &x = saved[0], &weight = saved[1], &inv = saved[2];
  const Site site(x, "x");
  const Rows rows(x);
  const at::Tensor dy = site.readable(gradient, rows.heads), dweight = zeros_for(weight);
  at::Tensor dx = x.new_empty(x.sizes());
  if (!site.on_gpu()) {
    if (past.defined()) dx.copy_(past);
    kernels::rmsnorm_backward(site.floats(x, "x"), rows.count, site.floats(weight, "weight"),
                              site.floats(inv, "inv"), site.floats(dy, "dy"), site.floats(dx, "dx"),
                              past.defined() ? Into::add : Into::overwrite,
                              site.floats(dweight, "dweight"), core::default_pool());
    return {dx, dweight};
  }
  const at::Tensor scratch = site.scratch(gpu::norm_backward_workspace(rows.count, rows.width));
  const gpu::Matrix xm = site.matrix(x, "x", rows.heads), w = site.matrix(weight, "weight"),
                    dym = site.matrix(dy, "dy", rows.heads),
                    dxm = site.matrix(dx, "dx", rows.heads);
  const float* numbers = site.floats(inv, "inv").data();
  float* sums = site.floats(dweight, "dweight").data();
  if (rows.heads == 1) {
    const at::Tensor beside = past.defined() ? site.readable(past) : at::Tensor();
    gpu::rmsnorm_backward(xm, w, numbers, dym,
                          past.defined() ? site.matrix(beside, "past") : gpu::Matrix{}, dxm, sums,
                          workspace_of(scratch), site.stream());
  } else {
    gpu::rmsnorm_heads_backward(xm, w, numbers, dym, dxm, sums, workspace_of(scratch),
                                site.stream());
  }
  return {dx, dweight.to(weight.scalar_type())};
}

Tensors rmsnorm_backward(const Arrived& arrived) {
  return rmsnorm_pull(arrived.saved, arrived.gradients[0], {});
}

Tensors add_rmsnorm_backward(const Arrived& arrived) {
  const at::Tensor &past = arrived.gradients[0], &dy = arrived.gradients[1];
  if (!dy.defined()) return {past, past, {}};
  const Tensors both = rmsnorm_pull(arrived.saved, dy, past);
  return {both[0], both[0], both[1]};
}

// Go back through the centred norm.
Tensors layernorm_backward(const Arrived& arrived) {
  const at::Tensor &x = arrived.saved[0], &weight = arrived.saved[1], &mean = arrived.saved[2],
                   &inv = arrived.saved[3];
  const Site site(x, "x");
  const Rows rows(x);
  const at::Tensor dy = site.readable(arrived.gradients[0]), dweight = zeros_for(weight),
                   dbias = zeros_for(weight);
  at::Tensor dx = x.new_empty(x.sizes());
  if (site.on_gpu()) {
    const at::Tensor scratch = site.scratch(gpu::norm_backward_workspace(rows.count, rows.width));
    gpu::layernorm_backward(
        site.matrix(x, "x"), site.matrix(weight, "weight"), site.floats(mean, "mean").data(),
        site.floats(inv, "inv").data(), site.matrix(dy, "dy"), {}, site.matrix(dx, "dx"),
        site.floats(dweight, "dweight").data(), site.floats(dbias, "dbias").data(),
        workspace_of(scratch), site.stream());
  } else {
    kernels::layernorm_backward(
        site.floats(x, "x"), rows.count, site.floats(weight, "weight"), site.floats(mean, "mean"),
        site.floats(inv, "inv"), site.floats(dy, "dy"), site.floats(dx, "dx"), Into::overwrite,
        site.floats(dweight, "dweight"), site.floats(dbias, "dbias"), core::default_pool());
  }
  return {dx, dweight.to(weight.scalar_type()), dbias.to(weight.scalar_type())};
}

}  // namespace

// Divide each row by its size.
at::Tensor rmsnorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return record("rmsnorm", {x, weight}, [&] {
    const Site site(x, "x");
    const Rows rows(x);
    const auto e = static_cast<float>(eps);
    at::Tensor y = x.new_empty(x.sizes());
    const at::Tensor inv = row_numbers(x, rows);
    float* numbers = site.floats(inv, "inv").data();
    if (!site.on_gpu()) {
      kernels::rmsnorm(site.floats(x, "x"), rows.count, site.floats(weight, "weight"), e,
                       site.floats(y, "y"), site.floats(inv, "inv"), core::default_pool());
    } else if (rows.heads == 1) {
      gpu::rmsnorm(site.matrix(x, "x"), site.matrix(weight, "weight"), e, site.matrix(y, "y"),
                   numbers, site.stream());
    } else {
      gpu::rmsnorm_heads(site.matrix(x, "x", 2), site.matrix(weight, "weight"), e,
                         site.matrix(y, "y", 2), numbers, site.stream());
    }
    return Step{{y}, {x, weight, inv}, rmsnorm_backward};
  })[0];
}

// Add, keep the sum, and norm it.
std::pair<at::Tensor, at::Tensor> add_rmsnorm(const at::Tensor& x, const at::Tensor& residual,
                                              const at::Tensor& weight, double eps) {
  const Tensors both = record("add_rmsnorm", {x, residual, weight}, [&] {
    const Site site(x, "x");
    const Rows rows(x);
    const auto e = static_cast<float>(eps);
    at::Tensor sum = x.new_empty(x.sizes()), y = x.new_empty(x.sizes());
    const at::Tensor inv = row_numbers(x, rows);
    if (site.on_gpu()) {
      gpu::add_rmsnorm(site.matrix(x, "x"), site.matrix(residual, "residual"),
                       site.matrix(weight, "weight"), e, site.matrix(sum, "sum"),
                       site.matrix(y, "y"), site.floats(inv, "inv").data(), site.stream());
    } else {
      if (residual.sizes() != x.sizes()) gpu::bad_argument("residual", "it is not shaped as x is");
      sum.copy_(x);
      kernels::add(site.floats(sum, "sum"), site.floats(residual, "residual"),
                   core::default_pool());
      kernels::rmsnorm(site.floats(sum, "sum"), rows.count, site.floats(weight, "weight"), e,
                       site.floats(y, "y"), site.floats(inv, "inv"), core::default_pool());
    }
    return Step{{sum, y}, {sum, weight, inv}, add_rmsnorm_backward};
  });
  return {both[0], both[1]};
}

// Centre each row, too.
at::Tensor layernorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double eps) {
  return record("layernorm", {x, weight, bias}, [&] {
    const Site site(x, "x");
    const Rows rows(x);
    const auto e = static_cast<float>(eps);
    at::Tensor y = x.new_empty(x.sizes());
    const at::Tensor mean = row_numbers(x, rows), inv = row_numbers(x, rows);
    if (site.on_gpu()) {
      gpu::layernorm(site.matrix(x, "x"), site.matrix(weight, "weight"), site.matrix(bias, "bias"),
                     e, site.matrix(y, "y"), site.floats(mean, "mean").data(),
                     site.floats(inv, "inv").data(), site.stream());
    } else {
      kernels::layernorm(site.floats(x, "x"), rows.count, site.floats(weight, "weight"),
                         site.floats(bias, "bias"), e, site.floats(y, "y"),
                         site.floats(mean, "mean"), site.floats(inv, "inv"), core::default_pool());
    }
    return Step{{y}, {x, weight, mean, inv}, layernorm_backward};
  })[0];
}

}  // namespace rose::kernels::autograd
