// Plan attention, check what it is given, enqueue it.

#include "rose/kernels/gpu/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "rose/core/error.h"
#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/attention_arguments.h"

namespace rose::kernels::gpu {
namespace {

namespace arguments = attention_arguments;

constexpr std::int64_t kItemWords = 4;    // of a work item
constexpr std::int64_t kSplitRows = 16;   // query rows of a block of the splits kernel
constexpr std::int64_t kBlockRows = 128;  // and of an item of the rows kernels
constexpr std::int64_t kPartsOfBlock = kBlockRows / kSplitRows;
constexpr std::int64_t kFewRows = 64;  // up to here splits run side by side
constexpr std::int64_t kSectionBytes =
    24 << 20;  // keys and values that the L2 keeps while blocks share them

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Refuse splits and lengths that make no sense.
void check_options(const AttentionShape& shape, const AttentionOptions& options) {
  const int tile = numerics::key_tile_of(shape.head_dim);
  if (options.key_split <= 0 || options.key_split % tile != 0) {
    bad_argument("options", fmt::format("a split of {} keys is not a number of tiles of {}",
                                        options.key_split, tile));
  }
  if (options.key_split != numerics::key_split && options.path != AttentionPath::rows) {
    bad_argument("options", "only the rows kernel takes another split");
  }
}

void check_lengths(std::span<const std::int32_t> row_offsets,
                   std::span<const std::int32_t> key_lengths) {
  if (!key_lengths.empty() && key_lengths.size() + 1 != row_offsets.size()) {
    bad_argument("key_lengths", fmt::format("{} lengths for {} sequences", key_lengths.size(),
                                            row_offsets.size() - 1));
  }
  for (const std::int32_t length : key_lengths) {
    if (length < 0) bad_argument("key_lengths", fmt::format("a length of {}", length));
  }
}

// Collect work.
struct Item {
  std::int32_t word[kItemWords];
};
struct SplitItem {
  std::int32_t word[2 * kItemWords];
};

struct Work {
  std::vector<Item> rows, merges;
  std::vector<SplitItem> splits;
  std::int64_t slots = 0;
};

/// One sequence: `tokens` queries, the last of which sees `keys` keys.
struct Sequence {
  std::int32_t index, first_token;
  std::int64_t tokens, keys;
  std::int64_t limit(std::int64_t token) const {
    return std::max<std::int64_t>(0, keys - tokens + token + 1);
  }
};

void add_splits(Work& work, const AttentionShape& shape, const Sequence& s) {
  const std::int64_t group = shape.heads / shape.kv_heads, rows = s.tokens * group;
  for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
    for (std::int64_t first = 0; first < rows; first += kSplitRows) {
      const std::int64_t last = std::min(first + kSplitRows, rows) - 1;
      const std::int64_t splits =
          std::max<std::int64_t>(1, divide_up(s.limit(last / group), numerics::key_split));
      const auto where = static_cast<std::int32_t>(head | first / kSplitRows << 16);
      for (std::int64_t i = 0; i < splits; ++i) {
        const std::int64_t slot = splits == 1 ? -1 : work.slots + i;
        work.splits.push_back({s.index, where, static_cast<std::int32_t>(i),
                               static_cast<std::int32_t>(slot), s.first_token,
                               static_cast<std::int32_t>(s.tokens),
                               static_cast<std::int32_t>(s.keys), 0});
      }
      if (splits > 1) {
        work.merges.push_back({s.index, where, static_cast<std::int32_t>(work.slots),
                               static_cast<std::int32_t>(splits)});
        work.slots += splits;
      }
    }
  }
}

// Long walks first, within sections of heads whose keys stay in the L2.
class RowItems {
 public:
  RowItems(std::vector<Item>& out, const AttentionShape& shape) : out_(out), shape_(shape) {}
  ~RowItems() { flush(); }
  RowItems(const RowItems&) = delete;
  RowItems& operator=(const RowItems&) = delete;

  void add(const Sequence& s, std::int64_t head) {
    const std::int64_t bytes = s.keys * shape_.head_dim * 4;  // keys and values of two bytes
    if (bytes_ + bytes > kSectionBytes) flush();
    bytes_ += bytes;
    const std::int64_t group = shape_.heads / shape_.kv_heads, rows = s.tokens * group;
    const std::int64_t tile = numerics::key_tile_of(shape_.head_dim);
    for (std::int64_t first = 0; first < rows; first += kBlockRows) {
      const std::int64_t last = std::min(first + kBlockRows, rows) - 1;
      section_.emplace_back(
          divide_up(s.limit(last / group), tile),
          Item{s.index, static_cast<std::int32_t>(first), static_cast<std::int32_t>(head), -1});
    }
  }

 private:
  void flush() {
    std::stable_sort(section_.begin(), section_.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& entry : section_) out_.push_back(entry.second);
    section_.clear();
    bytes_ = 0;
  }
  std::vector<Item>& out_;
  const AttentionShape& shape_;
  std::vector<std::pair<std::int64_t, Item>> section_;
  std::int64_t bytes_ = 0;
};

// Hand a long walk out split by split.
bool in_splits(const AttentionShape& shape, const AttentionOptions& options, std::int64_t tokens) {
  if (options.path != AttentionPath::automatic) return options.path == AttentionPath::splits;
  return tokens * (shape.heads / shape.kv_heads) <= kFewRows;
}

/// How many blocks would walk all keys.
std::int64_t row_blocks(const AttentionShape& shape, const AttentionOptions& options,
                        std::span<const std::int32_t> row_offsets) {
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i + 1 < row_offsets.size(); ++i) {
    const std::int64_t tokens = row_offsets[i + 1] - row_offsets[i];
    if (in_splits(shape, options, tokens)) continue;
    blocks += shape.kv_heads * divide_up(tokens * (shape.heads / shape.kv_heads), kBlockRows);
  }
  return blocks;
}

void add_divided(Work& work, const AttentionShape& shape, const Sequence& s) {
  const std::int64_t group = shape.heads / shape.kv_heads, rows = s.tokens * group;
  for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
    for (std::int64_t first = 0; first < rows; first += kBlockRows) {
      const std::int64_t end = std::min(first + kBlockRows, rows);
      const std::int64_t splits =
          std::max<std::int64_t>(1, divide_up(s.limit((end - 1) / group), numerics::key_split));
      for (std::int64_t i = 0; i < splits; ++i) {
        const std::int64_t slot = splits == 1 ? -1 : work.slots + i;
        work.rows.push_back({s.index, static_cast<std::int32_t>(first),
                             static_cast<std::int32_t>(head | i << 16),
                             static_cast<std::int32_t>(slot)});
      }
      for (std::int64_t part = first; splits > 1 && part < end; part += kSplitRows) {
        work.merges.push_back({s.index, static_cast<std::int32_t>(head | part / kSplitRows << 16),
                               static_cast<std::int32_t>(work.slots),
                               static_cast<std::int32_t>(splits)});
        work.slots += splits;
      }
    }
  }
}

// Put items behind the words that are there; empty ones up to a least number.
template <class T>
std::int64_t append(std::vector<std::int32_t>& words, const std::vector<T>& items,
                    std::int64_t least, std::int64_t& count) {
  const auto at = static_cast<std::int64_t>(words.size());
  for (const T& item : items) {
    words.insert(words.end(), std::begin(item.word), std::end(item.word));
  }
  count = std::max(least, static_cast<std::int64_t>(items.size()));
  const std::int64_t end = at + count * static_cast<std::int64_t>(sizeof(T) / sizeof(std::int32_t));
  words.resize(static_cast<std::size_t>(end), -1);
  return at;
}

}  // namespace

// Choose a kernel for every sequence.
AttentionPlan plan_attention(const AttentionShape& shape, std::span<const std::int32_t> row_offsets,
                             std::span<const std::int32_t> key_lengths,
                             const AttentionOptions& options) {
  arguments::check_shape(shape);
  check_options(shape, options);
  arguments::check_offsets(row_offsets);
  check_lengths(row_offsets, key_lengths);
  AttentionPlan plan;
  plan.shape = shape;
  plan.options = options;
  plan.tokens = row_offsets.back();
  plan.sequences = static_cast<std::int64_t>(row_offsets.size()) - 1;
  plan.packed = key_lengths.empty();
  plan.words.assign(row_offsets.begin(), row_offsets.end());
  plan.lengths = plan.sequences + 1;
  const bool divide = row_blocks(shape, options, row_offsets) < options.divide_below;
  Work work;
  {
    RowItems rows(work.rows, shape);
    for (std::size_t i = 0; i + 1 < row_offsets.size(); ++i) {
      const std::int64_t tokens = row_offsets[i + 1] - row_offsets[i];
      const Sequence s{static_cast<std::int32_t>(i), row_offsets[i], tokens,
                       plan.packed ? tokens : key_lengths[i]};
      plan.words.push_back(static_cast<std::int32_t>(s.keys));
      plan.longest = std::max(plan.longest, s.keys);
      if (in_splits(shape, options, tokens)) {
        add_splits(work, shape, s);
      } else if (divide) {
        add_divided(work, shape, s);
      } else {
        for (std::int64_t head = 0; head < shape.kv_heads; ++head) rows.add(s, head);
      }
    }
  }
  plan.words.resize(static_cast<std::size_t>(
      divide_up(static_cast<std::int64_t>(plan.words.size()), kItemWords) * kItemWords));
  plan.row_items = append(plan.words, work.rows, options.least_rows, plan.rows);
  plan.split_items = append(plan.words, work.splits, options.least_splits, plan.splits);
  plan.merge_items = append(plan.words, work.merges, options.least_merges, plan.merges);
  plan.slots = std::max(work.slots, options.least_merges > 0
                                        ? kPartsOfBlock * options.least_rows + options.least_splits
                                        : 0);
  return plan;
}

// Say how much memory it takes.
std::size_t AttentionPlan::plan_bytes() const {
  return arguments::aligned(words.size() * sizeof(std::int32_t));
}

std::size_t AttentionPlan::workspace_bytes() const {
  const std::int64_t partials = slots * kSplitRows * (shape.head_dim + 2);
  return plan_bytes() + static_cast<std::size_t>(partials) * sizeof(float);
}

// Refuse what does not fit the plan.
namespace {

AttentionCall begin(const AttentionPlan& plan, const Matrix& q, const Matrix& out, float* lse,
                    const Workspace& workspace) {
  const AttentionShape& shape = plan.shape;
  arguments::check_dtype(q.dtype, "q");
  arguments::check_rows(q, "q", plan.tokens, shape.heads * shape.head_dim, q.dtype);
  arguments::check_rows(out, "out", plan.tokens, shape.heads * shape.head_dim, q.dtype);
  check_workspace(workspace, plan.workspace_bytes());
  AttentionCall call;
  call.q = q.data;
  call.out = out.data;
  call.lse = lse;
  call.q_stride = q.row_stride();
  call.out_stride = out.row_stride();
  call.heads = static_cast<int>(shape.heads);
  call.kv_heads = static_cast<int>(shape.kv_heads);
  call.head_dim = static_cast<int>(shape.head_dim);
  call.factor = arguments::base_2_factor(shape.scale);
  call.split = plan.options.key_split;
  call.warpgroup = plan.options.warpgroup;
  call.turns = plan.options.turns;
  call.dtype = q.dtype;
  call.row_offsets = static_cast<const std::int32_t*>(workspace.data);
  call.key_lengths = call.row_offsets + plan.lengths;
  call.partials =
      reinterpret_cast<float*>(static_cast<std::byte*>(workspace.data) + plan.plan_bytes());
  return call;
}

// Enqueue the kernels that the plan asks for.
void run(const AttentionPlan& plan, AttentionCall call, Stream stream) {
#ifdef ROSE_HAVE_CUDA
  const auto with = [&](std::int64_t items, std::int64_t count) -> const AttentionCall& {
    call.items = call.row_offsets + items;
    call.item_count = count;
    return call;
  };
  if (plan.rows > 0) launch_attention_rows(with(plan.row_items, plan.rows), stream.handle);
  if (plan.splits > 0) {
    const AttentionCall& splits = with(plan.split_items, plan.splits);
    if (!launch_attention_pages(splits, stream.handle)) {
      launch_attention_splits(splits, stream.handle);
    }
  }
  if (plan.merges > 0) launch_attention_merge(with(plan.merge_items, plan.merges), stream.handle);
#else
  static_cast<void>(plan), static_cast<void>(call), static_cast<void>(stream);
  no_cuda("attention");
#endif
}

}  // namespace

// Refuse a cache that kernels cannot address.
void check_cache(const KvView& kv, int layer, DType dtype, std::int64_t kv_heads,
                 std::int64_t head_dim) {
  if (kv.dtype != dtype) {
    bad_argument("kv", fmt::format("a cache of {}, where {} is needed", info(kv.dtype).name,
                                   info(dtype).name));
  }
  if (kv.kv_heads != kv_heads || kv.head_dim != head_dim) {
    bad_argument("kv", fmt::format("{} heads of {}, where {} of {} are needed", kv.kv_heads,
                                   kv.head_dim, kv_heads, head_dim));
  }
  if (layer < 0 || layer >= kv.layers) {
    bad_argument("layer", fmt::format("layer {} of {}", layer, kv.layers));
  }
  if (kv.page_size <= 0 || kv.pages <= 0 || kv.table_stride < 0 ||
      kv.pages > std::numeric_limits<std::int32_t>::max() / kv.kv_heads / kv.page_size) {
    bad_argument("kv", fmt::format("{} pages of {} positions", kv.pages, kv.page_size));
  }
  const auto address =
      reinterpret_cast<std::uintptr_t>(kv.k) | reinterpret_cast<std::uintptr_t>(kv.v);
  if (kv.k == nullptr || kv.v == nullptr || kv.page_table == nullptr || address % 16 != 0) {
    bad_argument("kv",
                 "keys, values and page table must be there, and begin at multiples of 16 bytes");
  }
}

// Upload the plan, and attend to packed rows.
void upload(const AttentionPlan& plan, Workspace workspace, Stream stream) {
  check_workspace(workspace, plan.workspace_bytes());
  if (plan.tokens == 0) return;
#ifdef ROSE_HAVE_CUDA
  launch_upload(plan.words.data(), plan.words.size() * sizeof(std::int32_t), workspace.data,
                stream.handle);
#else
  static_cast<void>(stream);
  no_cuda("attention");
#endif
}

void attention(const AttentionPlan& plan, const Matrix& q, const Matrix& k, const Matrix& v,
               const Matrix& out, float* lse, Workspace workspace, Stream stream) {
  AttentionCall call = begin(plan, q, out, lse, workspace);
  if (!plan.packed) {
    bad_argument("plan", "it was made for a cache: packed rows take no key lengths");
  }
  const std::int64_t width = plan.shape.kv_heads * plan.shape.head_dim;
  arguments::check_rows(k, "k", plan.tokens, width, q.dtype);
  arguments::check_rows(v, "v", plan.tokens, width, q.dtype);
  if (plan.tokens == 0) return;
  call.k = k.data;
  call.v = v.data;
  call.key_stride = k.row_stride();
  call.value_stride = v.row_stride();
  call.head_step = plan.shape.head_dim;
  call.key_rows = plan.tokens;
  run(plan, call, stream);
}

// Attend through the cache.
void attention(const AttentionPlan& plan, const Matrix& q, const KvView& kv, int layer,
               const Matrix& out, float* lse, Workspace workspace, Stream stream,
               std::int32_t* fault) {
  AttentionCall call = begin(plan, q, out, lse, workspace);
  const bool is_bytes = kv.dtype == DType::u8;
  check_cache(kv, layer, is_bytes ? DType::u8 : q.dtype, plan.shape.kv_heads, plan.shape.head_dim);
  if (is_bytes && q.dtype == DType::f32) bad_argument("q", "a cache of bytes takes bf16 or f16");
  if (plan.longest > kv.capacity()) {
    bad_argument("kv", fmt::format("a sequence of {} keys, where a page table has room for {}",
                                   plan.longest, kv.capacity()));
  }
  if (plan.tokens == 0) return;
  const std::int64_t rows = kv.pages * kv.kv_heads * kv.page_size;
  const std::int64_t bytes =
      layer * rows * static_cast<std::int64_t>(row_bytes(kv.dtype, kv.head_dim));
  call.k = static_cast<const std::byte*>(kv.k) + bytes;
  call.v = static_cast<const std::byte*>(kv.v) + bytes;
  call.bytes = is_bytes;
  if (kv.k_scale != nullptr) call.key_scale = kv.k_scale + layer * kv.kv_heads;
  if (kv.v_scale != nullptr) call.value_scale = kv.v_scale + layer * kv.kv_heads;
  call.key_stride = call.value_stride = kv.head_dim;
  call.key_rows = rows;
  call.page_table = kv.page_table;
  call.table_stride = kv.table_stride;
  call.pages = static_cast<int>(kv.pages);
  call.page_size = kv.page_size;
  if (std::has_single_bit(static_cast<unsigned>(kv.page_size))) {
    call.page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size));
  }
  call.fault = fault;
  run(plan, call, stream);
}

}  // namespace rose::kernels::gpu
