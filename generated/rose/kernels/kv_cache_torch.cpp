// See tensors as a cache.

#include "rose/kernels/kv_cache_torch.h"

#include <array>
#include <span>
#include <vector>

#include "rose/kernels/attention.h"
#include "rose/kernels/autograd_torch.h"
#include "rose/kernels/gpu/kv_cache.h"
#include "rose/kernels/kv_cache.h"
#include "rose/kernels/tensor_torch.h"

namespace rose::kernels::autograd {
namespace {

KvView view_of(const Site& site, const KvTensors& kv) {
  refuse_gradient("a cache", {kv.k, kv.v});
  if (kv.k.dim() != 5 || kv.k.sizes() != kv.v.sizes() || !kv.k.is_contiguous() ||
      !kv.v.is_contiguous() || kv.k.scalar_type() != kv.v.scalar_type()) {
    gpu::bad_argument("kv", "k and v are [layers, pages, kv_heads, page_size, head_dim], alike");
  }
  if (kv.page_table.dim() != 2) gpu::bad_argument("page_table", "[sequences, entries] is needed");
  KvView view;
  view.k = site.matrix(kv.k, "k").data;
  view.v = site.matrix(kv.v, "v").data;
  view.dtype = dtype_of(kv.k, "k");
  view.layers = static_cast<int>(kv.k.size(0));
  view.pages = kv.k.size(1);
  view.kv_heads = static_cast<int>(kv.k.size(2));
  view.page_size = static_cast<int>(kv.k.size(3));
  view.head_dim = static_cast<int>(kv.k.size(4));
  view.page_table = site.integers(kv.page_table, "page_table").data();
  view.table_stride = kv.page_table.size(1);
  return view;
}

/// A tensor of whole numbers as structures of so many of them.
template <class T>
std::span<const T> structures(const Site& site, const at::Tensor& tensor, const char* argument) {
  constexpr std::int64_t width = sizeof(T) / sizeof(std::int32_t);
  if (tensor.dim() != 2 || tensor.size(1) != width) {
    gpu::bad_argument(argument, "it has not the columns of what it lists");
  }
  return {reinterpret_cast<const T*>(site.integers(tensor, argument).data()),
          static_cast<std::size_t>(tensor.size(0))};
}

}  // namespace

// Append.
void kv_append(const KvTensors& kv, int layer, const at::Tensor& k, const at::Tensor& v,
               const at::Tensor& places) {
  refuse_gradient("kv_append", {k, v});
  const Site site(kv.k, "k");
  KvView view = view_of(site, kv);
  const auto list = structures<KvPlace>(site, places, "places");
  if (k.dim() != 3 || k.sizes() != v.sizes() || k.size(0) != places.size(0) ||
      k.size(1) != view.kv_heads || k.size(2) != view.head_dim) {
    gpu::bad_argument("k", "[T, kv_heads, head_dim] is needed, with a place for each token");
  }
  if (site.on_gpu()) {
    return gpu::kv_append({}, site.matrix(k, "k", 2), site.matrix(v, "v", 2), view, layer,
                          list.data(), {}, site.stream());
  }
  const std::span<const float> keys = site.floats(k, "k"), values = site.floats(v, "v");
  const std::size_t width = list.empty() ? 0 : keys.size() / list.size();
  constexpr std::array<std::int32_t, 2> one{0, 1};
  const std::int32_t* const table = view.page_table;
  for (std::size_t t = 0; t < list.size(); ++t) {
    if (list[t].position < 0) continue;
    if (list[t].sequence < 0 || list[t].sequence >= kv.page_table.size(0) ||
        list[t].position >= view.capacity()) {
      gpu::bad_argument("places", "a place outside the table");
    }
    view.page_table = table + list[t].sequence * view.table_stride;
    kernels::kv_append(keys.subspan(t * width, width), values.subspan(t * width, width), view,
                       layer, one, {&list[t].position, 1}, core::default_pool());
  }
}

// Gather.
std::pair<at::Tensor, at::Tensor> kv_gather(const KvTensors& kv, int layer,
                                            const at::Tensor& places) {
  const Site site(kv.k, "k");
  const KvView view = view_of(site, kv);
  const auto list = structures<KvPlace>(site, places, "places");
  const std::array<std::int64_t, 3> sizes{places.size(0), view.kv_heads, view.head_dim};
  at::Tensor k = kv.k.new_empty(sizes), v = kv.v.new_empty(sizes);
  if (site.on_gpu()) {
    gpu::kv_gather(view, layer, list.data(), site.matrix(k, "k", 2), site.matrix(v, "v", 2),
                   site.stream());
  } else {
    kernels::kv_gather(view, layer, list, k.mutable_data_ptr(), v.mutable_data_ptr());
  }
  return {k, v};
}

// Copy pages, and roll over.
void kv_copy_pages(const KvTensors& kv, const at::Tensor& copies) {
  const Site site(kv.k, "k");
  const KvView view = view_of(site, kv);
  const auto list = structures<KvPageCopy>(site, copies, "copies");
  if (!site.on_gpu()) return kernels::kv_copy_pages(view, list);
  gpu::kv_copy_pages(view, list.data(), static_cast<std::int64_t>(list.size()), site.stream());
}

at::Tensor kv_rollover(const KvTensors& kv, const at::Tensor& growths) {
  const Site site(kv.k, "k");
  const KvView view = view_of(site, kv);
  const auto list = structures<KvGrowth>(site, growths, "growths");
  at::Tensor taken = growths.new_empty({growths.size(0)});
  auto* const table = static_cast<std::int32_t*>(kv.page_table.mutable_data_ptr());
  auto* const answers = static_cast<std::int32_t*>(taken.mutable_data_ptr());
  if (site.on_gpu()) {
    gpu::kv_rollover(view, list.data(), static_cast<std::int64_t>(list.size()), table, answers,
                     site.stream());
  } else {
    kernels::kv_rollover(view, list, {table, static_cast<std::size_t>(kv.page_table.numel())},
                         {answers, list.size()});
  }
  return taken;
}

}  // namespace rose::kernels::autograd
