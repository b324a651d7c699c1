// Compute the gradient while the logits are at hand.

#include "rose/kernels/cross_entropy_torch.h"

#include <algorithm>
#include <vector>

#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/cross_entropy.h"
#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/softmax.h"
#include "rose/kernels/logprob.h"
#include "rose/kernels/softmax.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

void check_scores(const at::Tensor& logits, const at::Tensor& targets) {
  if (logits.dim() != 2) gpu::bad_argument("logits", "[R, V] is needed");
  if (targets.dim() != 1 || targets.size(0) != logits.size(0)) {
    gpu::bad_argument("targets", "one target is needed for each row of logits");
  }
}

}  // namespace

// Save the gradient for a loss of weight one.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  check_scores(logits, targets);
  if (!wants_gradient({logits}) && logits.is_cuda()) {
    return token_logprob(logits, targets).first.neg_().masked_fill_(targets.lt(0), 0);
  }
  return record("cross_entropy", {logits}, [&] {
    const Site site(logits, "logits");
    const auto ids = site.integers(targets, "targets");
    at::Tensor slope = logits.new_empty(logits.sizes()),
               losses = logits.new_empty({logits.size(0)});
    if (site.on_gpu()) {
      gpu::cross_entropy(site.matrix(logits, "logits"), ids.data(), 1.0f,
                         site.matrix(slope, "slope"), site.floats(losses, "losses").data(), nullptr,
                         site.stream());
    } else {
      std::vector<float> scratch;
      slope.copy_(logits);
      kernels::cross_entropy(site.floats(slope, "logits"), logits.size(0), ids, 1.0f,
                             site.floats(losses, "losses"), core::default_pool(), scratch);
    }
    return Step{{losses}, {slope}, [](const Arrived& arrived) {
                  return Tensors{arrived.saved[0].mul(arrived.gradients[0].unsqueeze(1))};
                }};
  })[0];
}

// Score without a way back.
std::pair<at::Tensor, at::Tensor> token_logprob(const at::Tensor& logits,
                                                const at::Tensor& targets) {
  refuse_gradient("token_logprob", {logits});
  check_scores(logits, targets);
  const Site site(logits, "logits");
  const auto ids = site.integers(targets, "targets");
  at::Tensor logprob = logits.new_empty({logits.size(0)}), lse = logits.new_empty({logits.size(0)});
  const auto out = site.floats(logprob, "logprob"), sums = site.floats(lse, "lse");
  if (site.on_gpu()) {
    gpu::token_logprob(site.matrix(logits, "logits"), ids.data(), out.data(), sums.data(),
                       site.stream());
  } else {
    kernels::token_logprob(site.floats(logits, "logits"), logits.size(0), ids, out, sums,
                           core::default_pool());
  }
  return {logprob, lse};
}

// Turn rows into probabilities, and back.
namespace {

std::int64_t rows_of(const at::Tensor& x) {
  return x.numel() / (x.dim() == 0 ? 1 : std::max<std::int64_t>(1, x.size(-1)));
}

Tensors softmax_backward(const Arrived& arrived) {
  const at::Tensor& y = arrived.saved[0];
  const Site site(y, "y");
  const at::Tensor dy = site.readable(arrived.gradients[0]);
  at::Tensor dx = y.new_empty(y.sizes());
  if (site.on_gpu()) {
    gpu::softmax_backward(site.matrix(y, "y"), site.matrix(dy, "dy"), site.matrix(dx, "dx"),
                          site.stream());
  } else {
    kernels::softmax_backward(site.floats(y, "y"), site.floats(dy, "dy"), rows_of(y),
                              site.floats(dx, "dx"), core::default_pool());
  }
  return {dx};
}

}  // namespace

at::Tensor softmax(const at::Tensor& x) {
  return record("softmax", {x}, [&] {
    const Site site(x, "x");
    at::Tensor y = x.new_empty(x.sizes());
    if (site.on_gpu()) {
      gpu::softmax(site.matrix(x, "x"), site.matrix(y, "y"), site.stream());
    } else {
      kernels::softmax(site.floats(x, "x"), rows_of(x), site.floats(y, "y"), core::default_pool());
    }
    return Step{{y}, {y}, softmax_backward};
  })[0];
}

}  // namespace rose::kernels::autograd
