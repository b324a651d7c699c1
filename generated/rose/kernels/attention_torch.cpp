// Plan once per batch, save what is linear in the tokens.

#include "rose/kernels/attention_torch.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "rose/kernels/attention_backward.h"
#include "rose/kernels/autograd_torch.h"

namespace rose::kernels::autograd {
namespace {

template <class Plan, class Make>
const Planned<Plan>& planned(std::optional<Planned<Plan>>& kept, const Site& site,
                             const Make& make) {
  void* const stream = site.stream().handle;
  if (!kept || kept->stream != stream) {
    kept.emplace(Planned<Plan>{make(), {}, stream});
    kept->scratch = site.scratch(kept->plan.workspace_bytes());
    gpu::upload(kept->plan, workspace_of(kept->scratch), site.stream());
  }
  return *kept;
}

// Check that heads and tokens are those of the batch.
void check_heads(const PackedRows& rows, const at::Tensor& x, const char* argument,
                 std::int64_t heads) {
  if (x.dim() == 3 && x.size(0) == rows.tokens() && x.size(1) == heads &&
      x.size(2) == rows.shape().head_dim) {
    return;
  }
  gpu::bad_argument(argument, "the batch needs [" + std::to_string(rows.tokens()) + ", " +
                                  std::to_string(heads) + ", " +
                                  std::to_string(rows.shape().head_dim) + "]");
}

// Go back through attention.
Tensors attention_backward(const Arrived& arrived, PackedRows& rows) {
  const at::Tensor &q = arrived.saved[0], &k = arrived.saved[1], &v = arrived.saved[2],
                   &out = arrived.saved[3], &lse = arrived.saved[4];
  const Site site(q, "q");
  const at::Tensor dout = site.readable(arrived.gradients[0], 2);
  at::Tensor dq = q.new_empty(q.sizes()), dk = k.new_empty(k.sizes()), dv = v.new_empty(v.sizes());
  if (site.on_gpu()) {
    const auto& [plan, scratch, stream] = rows.backward(site);
    const gpu::AttentionSaved saved{site.matrix(q, "q", 2), site.matrix(k, "k", 2),
                                    site.matrix(v, "v", 2), site.matrix(out, "out", 2),
                                    site.floats(lse, "lse").data()};
    gpu::attention_backward(plan, saved, site.matrix(dout, "dout", 2), site.matrix(dq, "dq", 2),
                            site.matrix(dk, "dk", 2), site.matrix(dv, "dv", 2),
                            workspace_of(scratch), site.stream());
    return {dq, dk, dv};
  }
  std::vector<float> grown;
  kernels::attention_backward(site.floats(q, "q"), site.floats(k, "k"), site.floats(v, "v"),
                              site.floats(out, "out"), site.floats(lse, "lse"),
                              site.floats(dout, "dout"), rows.row_offsets(), rows.shape(),
                              site.floats(dq, "dq"), site.floats(dk, "dk"), site.floats(dv, "dv"),
                              core::default_pool(), grown);
  return {dq, dk, dv};
}

}  // namespace

PackedRows::PackedRows(const AttentionShape& shape, std::vector<std::int32_t> row_offsets)
    : shape_(shape), row_offsets_(std::move(row_offsets)) {
  if (row_offsets_.empty() || row_offsets_.front() != 0 ||
      !std::is_sorted(row_offsets_.begin(), row_offsets_.end())) {
    gpu::bad_argument("row_offsets", "offsets must ascend from 0");
  }
}

const Planned<gpu::AttentionPlan>& PackedRows::forward(const Site& site) {
  return planned(forward_, site, [&] { return gpu::plan_attention(shape_, row_offsets_); });
}

const Planned<gpu::AttentionBackwardPlan>& PackedRows::backward(const Site& site) {
  return planned(backward_, site,
                 [&] { return gpu::plan_attention_backward(shape_, row_offsets_); });
}

// Attend, and keep one number per query and head.
at::Tensor attention(const std::shared_ptr<PackedRows>& rows, const at::Tensor& q,
                     const at::Tensor& k, const at::Tensor& v) {
  const AttentionShape& shape = rows->shape();
  check_heads(*rows, q, "q", shape.heads);
  check_heads(*rows, k, "k", shape.kv_heads);
  check_heads(*rows, v, "v", shape.kv_heads);
  const bool keep = wants_gradient({q, k, v});
  return record("attention", {q, k, v}, [&] {
    const Site site(q, "q");
    at::Tensor out = q.new_empty(q.sizes());
    const at::Tensor lse =
        q.new_empty({keep ? rows->tokens() : 0, shape.heads}, q.options().dtype(at::kFloat));
    const std::span<float> numbers = site.floats(lse, "lse");
    if (site.on_gpu()) {
      const auto& [plan, scratch, stream] = rows->forward(site);
      gpu::attention(plan, site.matrix(q, "q", 2), site.matrix(k, "k", 2), site.matrix(v, "v", 2),
                     site.matrix(out, "out", 2), keep ? numbers.data() : nullptr,
                     workspace_of(scratch), site.stream());
    } else {
      kernels::attention(site.floats(q, "q"), site.floats(k, "k"), site.floats(v, "v"),
                         rows->row_offsets(), shape, site.floats(out, "out"), numbers,
                         core::default_pool());
    }
    return Step{{out}, {q, k, v, out, lse}, [rows](const Arrived& arrived) {
                  return attention_backward(arrived, *rows);
                }};
  })[0];
}

}  // namespace rose::kernels::autograd
