// Save what goes in.

#include "rose/kernels/activation_torch.h"

#include "rose/kernels/activation_backward.h"
#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

// Multiply by the slope.
Tensors gelu_backward(const Arrived& arrived, Gelu kind) {
  const at::Tensor& x = arrived.saved[0];
  const Site site(x, "x");
  const at::Tensor dy = site.readable(arrived.gradients[0]);
  at::Tensor dx = x.new_empty(x.sizes());
  if (site.on_gpu()) {
    gpu::gelu_backward(site.matrix(x, "x"), site.matrix(dy, "dy"), site.matrix(dx, "dx"), kind,
                       site.stream());
  } else {
    kernels::gelu_backward(site.floats(x, "x"), site.floats(dy, "dy"), site.floats(dx, "dx"), kind,
                           core::default_pool());
  }
  return {dx};
}

Tensors silu_backward(const Arrived& arrived) {
  const at::Tensor& x = arrived.saved[0];
  const Site site(x, "x");
  const at::Tensor dy = site.readable(arrived.gradients[0]);
  at::Tensor dx = x.new_empty(x.sizes());
  if (site.on_gpu()) {
    gpu::silu_backward(site.matrix(x, "x"), site.matrix(dy, "dy"), site.matrix(dx, "dx"),
                       site.stream());
  } else {
    kernels::silu_backward(site.floats(x, "x"), site.floats(dy, "dy"), site.floats(dx, "dx"),
                           core::default_pool());
  }
  return {dx};
}

Tensors silu_multiply_backward(const Arrived& arrived) {
  const at::Tensor &gate = arrived.saved[0], &up = arrived.saved[1];
  const Site site(gate, "gate");
  const at::Tensor dy = site.readable(arrived.gradients[0]);
  at::Tensor dgate = gate.new_empty(gate.sizes()), dup = gate.new_empty(gate.sizes());
  if (site.on_gpu()) {
    gpu::silu_multiply_backward(site.matrix(gate, "gate"), site.matrix(up, "up"),
                                site.matrix(dy, "dy"), site.matrix(dgate, "dgate"),
                                site.matrix(dup, "dup"), site.stream());
  } else {
    kernels::silu_multiply_backward(site.floats(gate, "gate"), site.floats(up, "up"),
                                    site.floats(dy, "dy"), site.floats(dgate, "dgate"),
                                    site.floats(dup, "dup"), core::default_pool());
  }
  return {dgate, dup};
}

}  // namespace

at::Tensor gelu(const at::Tensor& x, Gelu kind) {
  return record("gelu", {x}, [&] {
    const Site site(x, "x");
    at::Tensor y = x.new_empty(x.sizes());
    if (site.on_gpu()) {
      gpu::gelu(site.matrix(x, "x"), site.matrix(y, "y"), kind, site.stream());
    } else {
      kernels::gelu(site.floats(x, "x"), site.floats(y, "y"), kind, core::default_pool());
    }
    return Step{{y}, {x}, [kind](const Arrived& arrived) { return gelu_backward(arrived, kind); }};
  })[0];
}

at::Tensor silu(const at::Tensor& x) {
  return record("silu", {x}, [&] {
    const Site site(x, "x");
    at::Tensor y = x.new_empty(x.sizes());
    if (site.on_gpu()) {
      gpu::silu(site.matrix(x, "x"), site.matrix(y, "y"), site.stream());
    } else {
      kernels::silu(site.floats(x, "x"), site.floats(y, "y"), core::default_pool());
    }
    return Step{{y}, {x}, silu_backward};
  })[0];
}

at::Tensor silu_multiply(const at::Tensor& gate, const at::Tensor& up) {
  return record("silu_multiply", {gate, up}, [&] {
    const Site site(gate, "gate");
    at::Tensor y = gate.new_empty(gate.sizes());
    if (site.on_gpu()) {
      gpu::silu_multiply(site.matrix(gate, "gate"), site.matrix(up, "up"), site.matrix(y, "y"),
                         site.stream());
    } else {
      kernels::silu_multiply(site.floats(gate, "gate"), site.floats(up, "up"), site.floats(y, "y"),
                             core::default_pool());
    }
    return Step{{y}, {gate, up}, silu_multiply_backward};
  })[0];
}

}  // namespace rose::kernels::autograd
