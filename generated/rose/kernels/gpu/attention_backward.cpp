// Plan the backward pass of attention, check what it is given, enqueue it.

#include "rose/kernels/gpu/attention_backward.h"

#include <algorithm>
#include <utility>

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/attention_arguments.h"
#include "rose/kernels/gpu/attention_backward.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr std::int64_t kItemWords = 4;  // of a work item
constexpr std::int64_t kBlock = 64;     // rows of a block
constexpr std::int64_t kPair = 2 * kBlock;
constexpr std::int64_t kSectionBytes =
    24 << 20;  // what blocks that run together read, and the L2 keeps

// List the blocks, longest walks first, within sections of heads that fit the L2.
struct Item {
  std::int64_t section, cost;
  std::int32_t sequence, first, head;
};

/// Counts what heads read, and says in which section the next one falls.
struct Sections {
  std::int64_t bytes = 0, section = 0;
  std::int64_t next(std::int64_t more) {
    if (bytes > 0 && bytes + more > kSectionBytes) {
      bytes = 0;
      ++section;
    }
    bytes += more;
    return section;
  }
};

/// Puts the items behind the words that are there.
std::int64_t append(std::vector<std::int32_t>& words, std::vector<Item>& items) {
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.section != b.section ? a.section < b.section : a.cost > b.cost;
  });
  const auto at = static_cast<std::int64_t>(words.size());
  for (const Item& i : items) {
    words.insert(words.end(), {i.sequence, i.first, i.head, 0});
  }
  return at;
}

}  // namespace

// Give every tile of keys and every tile of queries a block.
AttentionBackwardPlan plan_attention_backward(const AttentionShape& shape,
                                              std::span<const std::int32_t> row_offsets) {
  attention_arguments::check_shape(shape);
  attention_arguments::check_offsets(row_offsets);
  AttentionBackwardPlan plan;
  plan.shape = shape;
  constexpr std::int64_t wide = 128;  // narrower heads are faster one warpgroup to a block
  plan.pairs = shape.head_dim == wide;
  plan.tokens = row_offsets.back();
  plan.sequences = static_cast<std::int64_t>(row_offsets.size()) - 1;
  plan.words.assign(row_offsets.begin(), row_offsets.end());
  while (plan.words.size() % kItemWords != 0) plan.words.push_back(0);
  std::vector<Item> keys, queries, key_pairs, query_pairs;
  Sections key_sections, query_sections;
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::size_t s = 0; s + 1 < row_offsets.size(); ++s) {
    const std::int64_t tokens = row_offsets[s + 1] - row_offsets[s];
    const std::int64_t bytes = tokens * shape.head_dim * 4;  // two matrices of two bytes
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const bool leads = head % group == 0;  // its group of query heads
      const std::int64_t section = query_sections.next(leads ? bytes : 0);
      const std::int64_t key_section = leads ? key_sections.next(bytes * group) : 0;
      for (std::int64_t first = 0; first < tokens; first += kBlock) {
        Item item{section, first + kBlock, static_cast<std::int32_t>(s),
                  static_cast<std::int32_t>(first), static_cast<std::int32_t>(head)};
        queries.push_back(item);
        if (first % kPair == 0) query_pairs.push_back(item);
        if (!leads) continue;
        item.section = key_section;
        item.cost = tokens - first;
        item.head = static_cast<std::int32_t>(head / group);
        keys.push_back(item);
        if (first % kPair == 0) key_pairs.push_back(item);
      }
    }
  }
  plan.key_blocks = static_cast<std::int64_t>(keys.size());
  plan.query_blocks = static_cast<std::int64_t>(queries.size());
  plan.key_items = append(plan.words, keys);
  plan.query_items = append(plan.words, queries);
  plan.key_pair_blocks = static_cast<std::int64_t>(key_pairs.size());
  plan.query_pair_blocks = static_cast<std::int64_t>(query_pairs.size());
  plan.key_pair_items = append(plan.words, key_pairs);
  plan.query_pair_items = append(plan.words, query_pairs);
  return plan;
}

std::size_t AttentionBackwardPlan::plan_bytes() const {
  return attention_arguments::aligned(words.size() * sizeof(std::int32_t));
}

std::size_t AttentionBackwardPlan::workspace_bytes() const {
  return plan_bytes() + static_cast<std::size_t>(tokens * shape.heads) * sizeof(float);
}

// Put the plan where the kernels read it.
void upload(const AttentionBackwardPlan& plan, Workspace workspace, Stream stream) {
  check_workspace(workspace, plan.workspace_bytes());
  if (plan.tokens == 0) return;
#ifdef ROSE_HAVE_CUDA
  launch_upload(plan.words.data(), plan.words.size() * sizeof(std::int32_t), workspace.data,
                stream.handle);
#else
  static_cast<void>(stream);
  no_cuda("attention_backward");
#endif
}

// Describe the matrices to the kernels.
namespace {

AttentionBackwardCall describe(const AttentionBackwardPlan& plan, const AttentionSaved& saved,
                               const Matrix& dout, const Matrix& dq, const Matrix& dk,
                               const Matrix& dv, Workspace workspace) {
  AttentionBackwardCall call;
  call.q = saved.q.data;
  call.k = saved.k.data;
  call.v = saved.v.data;
  call.out = saved.out.data;
  call.dout = dout.data;
  call.dq = dq.data;
  call.dk = dk.data;
  call.dv = dv.data;
  call.q_stride = saved.q.row_stride();
  call.k_stride = saved.k.row_stride();
  call.v_stride = saved.v.row_stride();
  call.out_stride = saved.out.row_stride();
  call.dout_stride = dout.row_stride();
  call.dq_stride = dq.row_stride();
  call.dk_stride = dk.row_stride();
  call.dv_stride = dv.row_stride();
  call.lse = saved.lse;
  auto* const memory = static_cast<std::byte*>(workspace.data);
  call.delta = reinterpret_cast<float*>(memory + plan.plan_bytes());
  call.row_offsets = reinterpret_cast<const std::int32_t*>(memory);
  call.key_items = call.row_offsets + plan.key_items;
  call.query_items = call.row_offsets + plan.query_items;
  call.key_blocks = plan.key_blocks;
  call.query_blocks = plan.query_blocks;
  call.tokens = plan.tokens;
  call.heads = static_cast<int>(plan.shape.heads);
  call.kv_heads = static_cast<int>(plan.shape.kv_heads);
  call.head_dim = static_cast<int>(plan.shape.head_dim);
  call.scale = plan.shape.scale;
  call.factor = attention_arguments::base_2_factor(plan.shape.scale);
  call.dtype = saved.q.dtype;
  call.warpgroup = plan.warpgroup;
  call.pairs = plan.pairs;
  call.key_pairs = call.row_offsets + plan.key_pair_items;
  call.query_pairs = call.row_offsets + plan.query_pair_items;
  call.key_pair_blocks = plan.key_pair_blocks;
  call.query_pair_blocks = plan.query_pair_blocks;
  return call;
}

}  // namespace

// Refuse what does not fit, then launch.
void attention_backward(const AttentionBackwardPlan& plan, const AttentionSaved& saved,
                        const Matrix& dout, const Matrix& dq, const Matrix& dk, const Matrix& dv,
                        Workspace workspace, Stream stream) {
  const DType dtype = saved.q.dtype;
  attention_arguments::check_dtype(dtype, "q");
  const std::int64_t width = plan.shape.heads * plan.shape.head_dim,
                     key_width = plan.shape.kv_heads * plan.shape.head_dim;
  const std::pair<const Matrix*, const char*> wide[] = {
      {&saved.q, "q"}, {&saved.out, "out"}, {&dout, "dout"}, {&dq, "dq"}};
  const std::pair<const Matrix*, const char*> narrow[] = {
      {&saved.k, "k"}, {&saved.v, "v"}, {&dk, "dk"}, {&dv, "dv"}};
  for (const auto& [matrix, name] : wide) {
    attention_arguments::check_rows(*matrix, name, plan.tokens, width, dtype);
  }
  for (const auto& [matrix, name] : narrow) {
    attention_arguments::check_rows(*matrix, name, plan.tokens, key_width, dtype);
  }
  if (saved.lse == nullptr && plan.tokens > 0) bad_argument("lse", "no memory");
  check_workspace(workspace, plan.workspace_bytes());
  if (plan.tokens == 0) return;
#ifdef ROSE_HAVE_CUDA
  launch_attention_backward(describe(plan, saved, dout, dq, dk, dv, workspace), stream.handle);
#else
  static_cast<void>(stream), static_cast<void>(describe);
  no_cuda("attention_backward");
#endif
}

}  // namespace rose::kernels::gpu
