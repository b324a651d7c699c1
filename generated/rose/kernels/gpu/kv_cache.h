// Write to, copy within and read from a cache on a GPU.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/stream.h"
#include "rose/kernels/kv_cache.h"

namespace rose::kernels::gpu {

/// cos and sin of each token's angles, [T, head_dim / 2] each, on the device. Null: keys are stored as they are.
struct Rotation {
  const float *cos = nullptr, *sin = nullptr;
};

/// The norm that some families give every head of q and k before it is turned: weights [head_dim] on the device, f32 or bf16.
struct HeadNorm {
  const void *q = nullptr, *k = nullptr;
  DType dtype = DType::f32;
  float eps = 0;
};

/// Stores k and v [T, kv_heads * head_dim] at their places (T of them, on the device), keys turned by the rotation on their
/// way; turns q [T, heads * head_dim] in place, unless it is empty. The cache has the type of k: bf16, f16 or f32; or u8, and a number
/// is stored as the e4m3 nearest to it over the scale of its head. A turned number is rounded once, so the bits are those of turning first and storing then. A negative position stores nothing (padding).
/// fault, an int on the device or null, is set to 1 when a place has no page in the cache: nothing is written there.
/// With a norm, rmsnorm_heads of q and k comes first, with its bits; see can_norm_heads.
void kv_append(const Matrix& q, const Matrix& k, const Matrix& v, const KvView& kv, int layer,
               const KvPlace* places, const Rotation& rotation, Stream stream,
               std::int32_t* fault = nullptr, const HeadNorm& norm = {});

/// Whether kv_append takes a norm for such heads: bf16, and a power of two from 16 to 512 wide.
bool can_norm_heads(DType dtype, std::int64_t head_dim);

/// The reverse: k and v [T, kv_heads * head_dim] of one layer, of the cache's type, or of any from a cache of u8. Zeros for a negative position and for one without a page.
void kv_gather(const KvView& kv, int layer, const KvPlace* places, const Matrix& k, const Matrix& v,
               Stream stream, std::int32_t* fault = nullptr);

/// Copies pages, all layers, keys and values; `copies` is on the device. A page must not be source and target at once.
/// Pages outside the cache are reported and left alone.
void kv_copy_pages(const KvView& kv, const KvPageCopy* copies, std::int64_t count, Stream stream,
                   std::int32_t* fault = nullptr);

/// kernels::kv_rollover; growths, table and answers are on the device. What has no place is reported, left alone and not taken.
/// kv_append and decode read the table before the kernel before them has ended: another kernel stands between them and this one.
void kv_rollover(const KvView& kv, const KvGrowth* growths, std::int64_t count,
                 std::int32_t* page_table, std::int32_t* taken, Stream stream,
                 std::int32_t* fault = nullptr);

}  // namespace rose::kernels::gpu
