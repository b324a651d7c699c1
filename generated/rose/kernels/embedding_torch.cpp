// Add the gradients of a row in the order of its tokens.

#include "rose/kernels/embedding_torch.h"

#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/embedding.h"
#include "rose/kernels/embedding_backward.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

Tensors embedding_backward(const Arrived& arrived) {
  const at::Tensor &ids = arrived.saved[0], &table = arrived.saved[1];
  const Site site(table, "table");
  const at::Tensor dy = site.readable(arrived.gradients[0]);
  at::Tensor sums = table.new_zeros(table.sizes(), table.options().dtype(at::kFloat));
  const auto tokens = site.integers(ids, "ids");
  if (!site.on_gpu()) {
    kernels::embedding_backward(tokens, site.floats(dy, "dy"), site.floats(sums, "dtable"),
                                table.size(1), core::default_pool());
  } else if (dy.numel() > 0) {
    const at::Tensor scratch = site.scratch(gpu::embedding_backward_workspace(ids.numel()));
    gpu::embedding_backward(tokens.data(), site.matrix(dy, "dy"), site.matrix(sums, "dtable"),
                            workspace_of(scratch), site.stream());
  }
  return {sums.to(table.scalar_type())};
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table) {
  return record("embedding", {table}, [&] {
    const Site site(table, "table");
    if (ids.dim() != 1 || table.dim() != 2) {
      gpu::bad_argument("table", "ids [T] and a table [V, C] are needed");
    }
    const auto tokens = site.integers(ids, "ids");
    at::Tensor out =
        table.new_empty({ids.numel(), table.size(1)},
                        table.options().dtype(site.on_gpu() ? table.scalar_type() : at::kFloat));
    if (site.on_gpu()) {
      gpu::embedding(tokens.data(), site.matrix(table, "table"), site.matrix(out, "out"),
                     site.stream());
    } else {
      kernels::embedding(tokens, site.weight(table, "table"), site.floats(out, "out"),
                         core::default_pool());
    }
    return Step{{out}, {ids, table}, embedding_backward};
  })[0];
}

}  // namespace rose::kernels::autograd
