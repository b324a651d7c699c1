// Turn forward, and back by the opposite angle.

#include "rose/kernels/rope_torch.h"

#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/rope.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin, bool inverse) {
  const Site site(x, "x");
  if (x.dim() != 3) gpu::bad_argument("x", "[tokens, heads, head_dim] is needed");
  const std::int64_t tokens = x.size(0), heads = x.size(1), head_dim = x.size(2);
  const auto c = site.floats(cos, "cos"), s = site.floats(sin, "sin");
  if (cos.numel() != tokens * (head_dim / 2) || sin.numel() != cos.numel()) {
    gpu::bad_argument("cos", "cos and sin must be [tokens, head_dim / 2]");
  }
  at::Tensor y = x.new_empty(x.sizes());
  y.copy_(x);
  if (site.on_gpu()) {
    gpu::rope(site.matrix(y, "x", 2), head_dim, c.data(), s.data(), gpu::RopePairing::half, inverse,
              site.stream());
  } else {
    const at::Tensor opposite = inverse ? sin.neg() : sin;
    kernels::rope(site.floats(y, "x"), tokens, heads, head_dim, c, site.floats(opposite, "sin"),
                  core::default_pool());
  }
  return y;
}

}  // namespace

at::Tensor rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  return record("rope", {x}, [&] {
    return Step{
        {turned(x, cos, sin, false)}, {cos, sin}, [](const Arrived& arrived) {
          return Tensors{turned(arrived.gradients[0], arrived.saved[0], arrived.saved[1], true)};
        }};
  })[0];
}

}  // namespace rose::kernels::autograd
