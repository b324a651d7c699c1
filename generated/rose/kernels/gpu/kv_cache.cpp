// Check what the cache's kernels are given.

#include "rose/kernels/gpu/kv_cache.h"

#include <fmt/format.h>

#include <bit>

#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/attention_arguments.h"
#include "rose/kernels/gpu/kv_cache.cuh"

namespace rose::kernels::gpu {
namespace {

using attention_arguments::check_rows;

/// k and v are rows of this cache's heads. Whether there is anything to do.
bool check_pair(const KvView& kv, int layer, const Matrix& k, const Matrix& v,
                const KvPlace* places) {
  const DType dtype = kv.dtype == DType::u8 ? k.dtype : kv.dtype;
  attention_arguments::check_dtype(dtype, "kv");
  constexpr int unit = 16;
  if (kv.head_dim <= 0 || kv.head_dim % unit != 0) {
    bad_argument("kv",
                 fmt::format("heads of {}, where a multiple of {} is needed", kv.head_dim, unit));
  }
  check_cache(kv, layer, kv.dtype, kv.kv_heads, kv.head_dim);
  const std::int64_t width = static_cast<std::int64_t>(kv.kv_heads) * kv.head_dim;
  check_rows(k, "k", k.rows, width, dtype);
  check_rows(v, "v", k.rows, width, dtype);
  if (k.rows > 0 && places == nullptr) bad_argument("places", "no memory");
  return k.rows > 0;
}

KvCall call_of(const KvView& kv, int layer, const Matrix& k, const Matrix& v, const KvPlace* places,
               std::int32_t* fault) {
  KvCall call;
  call.kv = kv;
  call.layer = layer;
  call.k = k.data;
  call.v = v.data;
  call.k_stride = k.row_stride();
  call.v_stride = v.row_stride();
  call.tokens = k.rows;
  call.places = places;
  call.fault = fault;
  call.dtype = k.dtype;
  if (kv.k_scale != nullptr) call.key_scale = kv.k_scale + layer * kv.kv_heads;
  if (kv.v_scale != nullptr) call.value_scale = kv.v_scale + layer * kv.kv_heads;
  return call;
}

}  // namespace

// Append.
void kv_append(const Matrix& q, const Matrix& k, const Matrix& v, const KvView& kv, int layer,
               const KvPlace* places, const Rotation& rotation, Stream stream, std::int32_t* fault,
               const HeadNorm& norm) {
  const bool any = check_pair(kv, layer, k, v, places);
  if (!q.empty()) {
    if (q.cols % kv.head_dim != 0) {
      bad_argument("q", fmt::format("{} columns are not heads of {}", q.cols, kv.head_dim));
    }
    check_rows(q, "q", k.rows, q.cols, k.dtype);
  }
  if ((rotation.cos == nullptr) != (rotation.sin == nullptr)) {
    bad_argument("rotation", "cos and sin come together");
  }
  if (norm.q != nullptr || norm.k != nullptr) {
    if (norm.q == nullptr || norm.k == nullptr || q.empty()) {
      bad_argument("norm", "queries and keys are normed together");
    }
    if (!can_norm_heads(k.dtype, kv.head_dim)) {
      bad_argument("norm",
                   fmt::format("heads of {} {}: norm them apart", kv.head_dim, info(k.dtype).name));
    }
    if (norm.dtype != DType::f32 && norm.dtype != DType::bf16) {
      bad_argument("norm", "weights of f32 or bf16 are needed");
    }
    constexpr std::uintptr_t wide = 16;
    const auto addresses =
        reinterpret_cast<std::uintptr_t>(norm.q) | reinterpret_cast<std::uintptr_t>(norm.k);
    if (addresses % wide != 0) bad_argument("norm", "weights must begin at multiples of 16 bytes");
  }
  if (!any) return;
  KvCall call = call_of(kv, layer, k, v, places, fault);
  call.cos = rotation.cos;
  call.sin = rotation.sin;
  call.norm = norm;
  if (!q.empty() && (rotation.cos != nullptr || norm.q != nullptr)) {
    call.q = q.data;
    call.q_stride = q.row_stride();
    call.heads = static_cast<int>(q.cols / kv.head_dim);
  }
#ifdef ROSE_HAVE_CUDA
  launch_kv_append(call, stream.handle);
#else
  static_cast<void>(stream), static_cast<void>(call);
  no_cuda("kv_append");
#endif
}

// Gather.
bool can_norm_heads(DType dtype, std::int64_t head_dim) {
  constexpr std::int64_t least = 16, most = 512;  // a lane has 16 numbers of a head
  return dtype == DType::bf16 && head_dim >= least && head_dim <= most &&
         std::has_single_bit(static_cast<std::uint64_t>(head_dim));
}

void kv_gather(const KvView& kv, int layer, const KvPlace* places, const Matrix& k, const Matrix& v,
               Stream stream, std::int32_t* fault) {
  if (!check_pair(kv, layer, k, v, places)) return;
  const KvCall call = call_of(kv, layer, k, v, places, fault);
#ifdef ROSE_HAVE_CUDA
  launch_kv_gather(call, stream.handle);
#else
  static_cast<void>(stream), static_cast<void>(call);
  no_cuda("kv_gather");
#endif
}

// Copy pages.
void kv_copy_pages(const KvView& kv, const KvPageCopy* copies, std::int64_t count, Stream stream,
                   std::int32_t* fault) {
  check_cache(kv, 0, kv.dtype, kv.kv_heads, kv.head_dim);
  if (count < 0) bad_argument("count", fmt::format("{} copies", count));
  const std::int64_t elements = static_cast<std::int64_t>(kv.kv_heads) * kv.page_size * kv.head_dim;
  if (row_bytes(kv.dtype, elements) % 16 != 0) {
    bad_argument("kv", "a page must be a multiple of 16 bytes");
  }
  if (count == 0) return;
  if (copies == nullptr) bad_argument("copies", "no memory");
  KvCall call;
  call.kv = kv;
  call.copies = copies;
  call.count = count;
  call.fault = fault;
#ifdef ROSE_HAVE_CUDA
  launch_kv_copy_pages(call, stream.handle);
#else
  static_cast<void>(stream), static_cast<void>(call);
  no_cuda("kv_copy_pages");
#endif
}

// Roll over.
void kv_rollover(const KvView& kv, const KvGrowth* growths, std::int64_t count,
                 std::int32_t* page_table, std::int32_t* taken, Stream stream,
                 std::int32_t* fault) {
  if (kv.page_size <= 0) bad_argument("kv", fmt::format("pages of {} positions", kv.page_size));
  if (count < 0) bad_argument("count", fmt::format("{} sequences", count));
  if (count == 0) return;
  if (growths == nullptr) bad_argument("growths", "no memory");
  if (page_table == nullptr) bad_argument("page_table", "no memory");
  if (taken == nullptr) bad_argument("taken", "no memory");
#ifdef ROSE_HAVE_CUDA
  KvCall call;
  call.kv = kv;
  call.count = count;
  call.fault = fault;
  launch_kv_rollover(call, growths, page_table, taken, stream.handle);
#else
  static_cast<void>(stream), static_cast<void>(fault);
  no_cuda("kv_rollover");
#endif
}

}  // namespace rose::kernels::gpu
