// One group, or many.

#include "rose/kernels/adapter_torch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <vector>

#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/gpu/linear_packed.h"
#include "rose/kernels/linear.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

at::Tensor on_device(const at::Tensor& like, const at::Tensor& host) {
  return host.to(like.device());
}

// Two products and a sum.
void add_on_cpu(const Site& site, const at::Tensor& y, const at::Tensor& x,
                const AdapterOfRows& adapter) {
  const std::int64_t rows = x.size(0);
  const at::Tensor narrow = x.new_empty({rows, adapter.a.size(0)}), wide = x.new_empty(y.sizes());
  core::ThreadPool& pool = core::default_pool();
  kernels::linear(site.floats(x, "x"), rows, site.weight(adapter.a, "a"), nullptr,
                  site.floats(narrow, "x a"), pool);
  kernels::linear(site.floats(narrow, "x a"), rows, site.weight(adapter.b, "b"), nullptr,
                  site.floats(wide, "x a b"), pool);
  const std::span<float> to = site.floats(y, "y"), from = site.floats(wide, "x a b");
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += adapter.scale * from[i];
}

// Say where each group's matrices are.
void add_on_gpu(const Site& site, const at::Tensor& y, const at::Tensor& x,
                std::span<const AdapterOfRows> groups, std::span<const std::int32_t> offsets,
                std::int64_t rank) {
  std::vector<std::int64_t> a, b;
  std::vector<float> scales;
  const auto address = [&](const at::Tensor& t, const char* name) {
    if (!t.defined()) return std::int64_t{0};
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(site.weight(t, name).data));
  };
  for (const AdapterOfRows& group : groups) {
    if (group.a.defined() && group.a.scalar_type() != x.scalar_type()) {
      gpu::bad_argument("a", "adapters have the type of x");
    }
    a.push_back(address(group.a, "a"));
    b.push_back(address(group.b, "b"));
    scales.push_back(group.scale);
  }
  const at::Tensor places = on_device(x, at::tensor(a)), others = on_device(x, at::tensor(b)),
                   factors = on_device(x, at::tensor(scales)),
                   bounds = on_device(
                       x, at::tensor(std::vector<std::int32_t>(offsets.begin(), offsets.end()))),
                   scratch = site.scratch(gpu::adapters_workspace(x.size(0), rank));
  gpu::add_adapters(site.matrix(x, "x"),
                    {.a = static_cast<const void* const*>(places.const_data_ptr()),
                     .b = static_cast<const void* const*>(others.const_data_ptr()),
                     .scales = site.floats(factors, "scales").data(),
                     .offsets = site.integers(bounds, "offsets").data(),
                     .count = static_cast<std::int64_t>(groups.size()),
                     .rank = rank},
                    site.matrix(y, "y"), workspace_of(scratch), site.stream());
}

// Four gradients from two narrow matrices.
Tensors adapter_backward(const Arrived& arrived, double scale) {
  const at::Tensor &x = arrived.saved[0], &a = arrived.saved[1], &b = arrived.saved[2],
                   &dy = arrived.gradients[0];
  const at::Tensor rows = x.reshape({-1, x.size(-1)}), g = dy.reshape({-1, b.size(0)}).mul(scale);
  Tensors out(4);
  if (arrived.needed[0]) out[0] = dy;
  const at::Tensor narrow = g.matmul(b);
  if (arrived.needed[1]) out[1] = narrow.matmul(a).view(x.sizes());
  if (arrived.needed[2]) out[2] = narrow.t().matmul(rows);
  if (arrived.needed[3]) out[3] = g.t().matmul(rows.matmul(a.t()));
  return out;
}

}  // namespace

at::Tensor add_adapter(const at::Tensor& y, const at::Tensor& x, const at::Tensor& a,
                       const at::Tensor& b, double scale) {
  return record("add_adapter", {y, x, a, b}, [&] {
    at::Tensor out = y.contiguous().clone();
    const std::int64_t rows = x.numel() / std::max<std::int64_t>(1, x.size(-1));
    const AdapterOfRows one{a, b, static_cast<float>(scale)};
    const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(rows)};
    add_adapters(out.view({rows, y.size(-1)}), x.reshape({rows, x.size(-1)}), {&one, 1}, offsets);
    return Step{{out}, {x, a, b}, [scale](const Arrived& arrived) {
                  return adapter_backward(arrived, scale);
                }};
  })[0];
}

// Check the groups, then add each.
void add_adapters(const at::Tensor& y, const at::Tensor& x, std::span<const AdapterOfRows> groups,
                  std::span<const std::int32_t> offsets) {
  refuse_gradient("add_adapters", {y, x});
  if (x.dim() != 2 || y.dim() != 2 || x.size(0) != y.size(0)) {
    gpu::bad_argument("x", "x [M, K] and y [M, N] are needed");
  }
  if (offsets.size() != groups.size() + 1 || offsets.front() != 0 || offsets.back() != x.size(0) ||
      !std::is_sorted(offsets.begin(), offsets.end())) {
    gpu::bad_argument("offsets", "they ascend from 0 to the number of rows");
  }
  std::int64_t rank = 0;
  for (const AdapterOfRows& group : groups) {
    if (!group.a.defined()) continue;
    if (group.a.dim() != 2 || group.b.dim() != 2 || group.a.size(1) != x.size(1) ||
        group.b.size(0) != y.size(1) || group.b.size(1) != group.a.size(0) ||
        (rank != 0 && group.a.size(0) != rank)) {
      gpu::bad_argument("a", "a [r, K] and b [N, r] are needed, with one r for all");
    }
    rank = group.a.size(0);
  }
  if (rank == 0 || x.size(0) == 0) return;
  const Site site(x, "x");
  if (site.on_gpu()) return add_on_gpu(site, y, x, groups, offsets, rank);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::int64_t first = offsets[i], rows = offsets[i + 1] - first;
    if (groups[i].a.defined()) {
      add_on_cpu(site, y.narrow(0, first, rows), x.narrow(0, first, rows), groups[i]);
    }
  }
}

}  // namespace rose::kernels::autograd
