// Attention on a GPU: one expression, whoever asks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rose/kernels/attention.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/kernels/kv_view.h"
#include "rose/kernels/numerics.h"

namespace rose::kernels::gpu {

/// Which kernel takes a sequence's queries. Every choice gives the same bits.
enum class AttentionPath : std::uint8_t {
  automatic,  ///< few query rows: splits side by side; many: rows
  rows,       ///< a block per 64 or 128 query rows walks all keys
  splits      ///< a block per split of 512 keys, then a merge
};

struct AttentionOptions {
  AttentionPath path = AttentionPath::automatic;
  int key_split = numerics::key_split;  ///< another value is another function: for measuring only
  bool warpgroup = true;                ///< may use wgmma where the device has it (same bits)
  bool turns = true;                    ///< warpgroups take turns at issuing products (same bits)
  /// Where fewer blocks than this would walk all keys of many rows, each takes one split (same bits).
  std::int64_t divide_below = 0;
  /// Least numbers of work items, filled up with empty ones, so that a captured graph can be
  /// replayed with the plan of another batch.
  std::int64_t least_rows = 0, least_splits = 0, least_merges = 0;
};

// Plan a batch.

/// What one batch needs: made on the host from the lengths, used by every layer.
struct AttentionPlan {
  AttentionShape shape;
  AttentionOptions options;
  std::int64_t tokens = 0, sequences = 0, longest = 0;  ///< longest: keys of the longest sequence
  bool packed = true;                                   ///< no key lengths were given

  std::vector<std::int32_t> words;                ///< what the kernels read, in one upload
  std::int64_t rows = 0, splits = 0, merges = 0;  ///< work items
  std::int64_t row_items = 0, split_items = 0, merge_items = 0, lengths = 0;  ///< where in words
  std::int64_t slots = 0;  ///< partial results between the splits kernel and the merge

  std::size_t plan_bytes() const;       ///< words, rounded up
  std::size_t workspace_bytes() const;  ///< plan and partial results
};

/// row_offsets [S + 1]: the tokens (queries) of sequence s are row_offsets[s] .. row_offsets[s + 1] - 1.
/// key_lengths [S]: keys of each sequence, its own new tokens included; query i of n sees the first
/// length - n + i + 1 of them. Empty: packed rows, whose keys are their own tokens.
AttentionPlan plan_attention(const AttentionShape& shape, std::span<const std::int32_t> row_offsets,
                             std::span<const std::int32_t> key_lengths = {},
                             const AttentionOptions& options = {});

// Attend.

/// Copy the plan to the front of the workspace. The words must outlive the copy.
void upload(const AttentionPlan& plan, Workspace workspace, Stream stream);

/// Causal attention. q and out are [T, heads * head_dim], k and v [T, kv_heads * head_dim]; all of one
/// type, bf16, f16 or f32; rows may be strided (a packed QKV buffer). lse [T, heads] may be null.
/// A query that sees no key gets output 0 and log-sum-exp -inf.
void attention(const AttentionPlan& plan, const Matrix& q, const Matrix& k, const Matrix& v,
               const Matrix& out, float* lse, Workspace workspace, Stream stream);

/// The same through a cache, whose pointers and page table are the device's.
/// fault, an int on the device or null, is set to 1 when a page table entry is outside [0, pages):
/// such keys are not read, they count as zeros.
void attention(const AttentionPlan& plan, const Matrix& q, const KvView& kv, int layer,
               const Matrix& out, float* lse, Workspace workspace, Stream stream,
               std::int32_t* fault = nullptr);

/// Throws core::Error unless the cache has this type and these heads, and kernels can address it.
void check_cache(const KvView& kv, int layer, DType dtype, std::int64_t kv_heads,
                 std::int64_t head_dim);

}  // namespace rose::kernels::gpu
