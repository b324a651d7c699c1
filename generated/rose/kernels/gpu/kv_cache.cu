// Move rows and pages, sixteen bytes to a thread.

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/chain.cuh"
#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/gpu/kv_cache.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kThreads = 256;

/// Element offset of a place's key in its layer, -1 for none.
__device__ __forceinline__ std::int64_t offset_of(const KvCall& call, KvPlace place, int head) {
  const KvView& kv = call.kv;
  if (place.position < 0) return -1;
  std::int64_t page = -1;
  const int index = place.position / kv.page_size;
  if (index < kv.table_stride && place.sequence >= 0) {
    page = __ldg(kv.page_table + place.sequence * kv.table_stride + index);
  }
  if (page < 0 || page >= kv.pages) {
    if (call.fault != nullptr) *call.fault = 1;
    return -1;
  }
  return (((call.layer * kv.pages + page) * kv.kv_heads + head) * kv.page_size +
          place.position % kv.page_size) *
         kv.head_dim;
}

// Turn eight pairs of numbers.
template <class T>
struct alignas(16) Eight {
  T at[8];
};

/// Elements i and i + D/2 of a head turn together: (a c - b s, b c + a s), each product, sum and result rounded.
template <class T>
__device__ __forceinline__ void turn(Eight<T>& low, Eight<T>& high, const float* cos,
                                     const float* sin) {
  ROSE_UNROLL()
  for (int i = 0; i < 8; ++i) {
    const float a = to_float(low.at[i]), b = to_float(high.at[i]), c = cos[i], s = sin[i];
    low.at[i] = from_float<T>(__fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s)));
    high.at[i] = from_float<T>(__fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s)));
  }
}

// Make eight numbers bytes.

/// The e4m3 nearest to each over `scale`; what is too large becomes the largest.
template <class T>
__device__ __forceinline__ uint2 pack_bytes(const Eight<T>& numbers, float scale) {
  std::uint32_t words[2] = {};
  ROSE_UNROLL()
  for (int i = 0; i < 8; ++i) {
    const __nv_fp8_storage_t byte =
        __nv_cvt_float_to_fp8(to_float(numbers.at[i]) / scale, __NV_SATFINITE, __NV_E4M3);
    words[i / 4] |= static_cast<std::uint32_t>(byte) << i % 4 * 8;
  }
  return make_uint2(words[0], words[1]);
}

// Norm a head that lies in neighbouring lanes.
__device__ __forceinline__ void load_weights(const void* from, DType dtype, int at,
                                             float (&to)[8]) {
  if (dtype == DType::f32) {
    const auto eight = *reinterpret_cast<const Eight<float>*>(static_cast<const float*>(from) + at);
    ROSE_UNROLL()
    for (int i = 0; i < 8; ++i) to[i] = eight.at[i];
  } else {
    using Weight = __nv_bfloat16;
    const auto eight =
        *reinterpret_cast<const Eight<Weight>*>(static_cast<const Weight*>(from) + at);
    ROSE_UNROLL()
    for (int i = 0; i < 8; ++i) to[i] = to_float(eight.at[i]);
  }
}

template <class T>
__device__ __forceinline__ void norm_head(Eight<T>& low, Eight<T>& high, const HeadNorm& norm,
                                          const void* weights, int d, int half, int pieces) {
  Eight<T>* const eights[2] = {&low, &high};
  float squares[2] = {};
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    ROSE_UNROLL()
    for (int i = 0; i < 8; ++i) {
      const float x = to_float(eights[h]->at[i]);
      squares[h] = fmaf(x, x, squares[h]);
    }
  }
  float total = squares[0] + squares[1];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const unsigned lanes = (pieces == 32 ? ~0u : (1u << pieces) - 1) << (lane & ~(pieces - 1));
  for (int step = pieces / 2; step > 0; step /= 2) total += __shfl_xor_sync(lanes, total, step);
  const float inv = 1.0f / sqrtf(total / static_cast<float>(2 * half) + norm.eps);
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    float weight[8];
    load_weights(weights, norm.dtype, h * half + d, weight);
    ROSE_UNROLL()
    for (int i = 0; i < 8; ++i) {
      eights[h]->at[i] = from_float<T>(round_to<T>(to_float(eights[h]->at[i]) * inv) * weight[i]);
    }
  }
}

// Append: a thread takes eight pairs of one head of queries, keys or values.
template <class T, bool kBytes>
__global__ void __launch_bounds__(kThreads) append_rows(KvCall call) {
  const KvView& kv = call.kv;
  const int half = kv.head_dim / 2, pieces = half / 8;
  const int heads = call.heads + 2 * kv.kv_heads;  // queries, keys, values
  const std::int64_t unit = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t token = unit / (heads * pieces);
  allow_next();
  if (token >= call.tokens) return;
  const int rest = static_cast<int>(unit % (heads * pieces)), d = rest % pieces * 8;
  int head = rest / pieces;
  const bool is_query = head < call.heads;
  head -= is_query ? 0 : call.heads;
  const bool is_value = !is_query && head >= kv.kv_heads;
  head -= is_value ? kv.kv_heads : 0;

  T* const from = is_query   ? static_cast<T*>(call.q) + token * call.q_stride
                  : is_value ? static_cast<T*>(call.v) + token * call.v_stride
                             : static_cast<T*>(call.k) + token * call.k_stride;
  const std::int64_t at = static_cast<std::int64_t>(head) * kv.head_dim + d;
  T* to = from + at;
  std::int64_t offset = 0;
  if (!is_query) {
    offset = offset_of(call, call.places[token], head);
    if (!kBytes) to = static_cast<T*>(is_value ? kv.v : kv.k) + offset + d;
  }
  await_previous();
  if (offset < 0) return;
  auto low = *reinterpret_cast<const Eight<T>*>(from + at),
       high = *reinterpret_cast<const Eight<T>*>(from + at + half);
  if (!is_value && call.norm.q != nullptr) {
    norm_head<T>(low, high, call.norm, is_query ? call.norm.q : call.norm.k, d, half, pieces);
  }
  if (!is_value && call.cos != nullptr) {
    turn<T>(low, high, call.cos + token * half + d, call.sin + token * half + d);
  }
  if (kBytes && !is_query) {
    const float scale = byte_scale(is_value ? call.value_scale : call.key_scale, head);
    auto* const bytes = static_cast<std::uint8_t*>(is_value ? kv.v : kv.k) + offset + d;
    *reinterpret_cast<uint2*>(bytes) = pack_bytes(low, scale);
    *reinterpret_cast<uint2*>(bytes + half) = pack_bytes(high, scale);
    return;
  }
  *reinterpret_cast<Eight<T>*>(to) = low;
  *reinterpret_cast<Eight<T>*>(to + half) = high;
}

// Gather: the same walk, the other way.
template <class Bits>
__global__ void __launch_bounds__(kThreads) gather_rows(KvCall call) {
  const KvView& kv = call.kv;
  const int pieces = kv.head_dim / 8;
  const std::int64_t unit = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t token = unit / (2 * kv.kv_heads * pieces);
  if (token >= call.tokens) return;
  const int rest = static_cast<int>(unit % (2 * kv.kv_heads * pieces)), d = rest % pieces * 8;
  const bool is_value = rest / pieces >= kv.kv_heads;
  const int head = rest / pieces - (is_value ? kv.kv_heads : 0);
  const std::int64_t offset = offset_of(call, call.places[token], head);
  Eight<Bits> eight{};
  if (offset >= 0) {
    const auto* const from = static_cast<const Bits*>(is_value ? kv.v : kv.k);
    eight = *reinterpret_cast<const Eight<Bits>*>(from + offset + d);
  }
  auto* const to = static_cast<Bits*>(is_value ? call.v : call.k) +
                   token * (is_value ? call.v_stride : call.k_stride) + head * kv.head_dim + d;
  *reinterpret_cast<Eight<Bits>*>(to) = eight;
}

/// From a cache of bytes: each times its scale, rounded to T.
template <class T>
__global__ void __launch_bounds__(kThreads) gather_bytes(KvCall call) {
  const KvView& kv = call.kv;
  const int pieces = kv.head_dim / 8;
  const std::int64_t unit = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  const std::int64_t token = unit / (2 * kv.kv_heads * pieces);
  if (token >= call.tokens) return;
  const int rest = static_cast<int>(unit % (2 * kv.kv_heads * pieces)), d = rest % pieces * 8;
  const bool is_value = rest / pieces >= kv.kv_heads;
  const int head = rest / pieces - (is_value ? kv.kv_heads : 0);
  const std::int64_t offset = offset_of(call, call.places[token], head);
  const float scale = byte_scale(is_value ? call.value_scale : call.key_scale, head);
  uint2 bytes = make_uint2(0, 0);
  if (offset >= 0) {
    const auto* const from = static_cast<const std::uint8_t*>(is_value ? kv.v : kv.k);
    bytes = *reinterpret_cast<const uint2*>(from + offset + d);
  }
  auto* const to = static_cast<T*>(is_value ? call.v : call.k) +
                   token * (is_value ? call.v_stride : call.k_stride) + head * kv.head_dim + d;
  ROSE_UNROLL()
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t word = i < 4 ? bytes.x : bytes.y;
    const auto one = static_cast<__nv_fp8_storage_t>(word >> i % 4 * 8 & 0xffu);
    const float value = __half2float(__half(__nv_cvt_fp8_to_halfraw(one, __NV_E4M3)));
    to[i] = from_float<T>(value * scale);
  }
}

// Copy pages: a row of blocks for every copy, layer, and keys or values.
__global__ void __launch_bounds__(kThreads) copy_pages(KvCall call, std::int64_t page_bytes) {
  const KvView& kv = call.kv;
  const KvPageCopy copy = call.copies[blockIdx.x];
  if (copy.from < 0 || copy.from >= kv.pages || copy.to < 0 || copy.to >= kv.pages) {
    if (call.fault != nullptr) *call.fault = 1;
    return;
  }
  const std::int64_t layer = blockIdx.y / 2;
  auto* const base = static_cast<char*>(blockIdx.y % 2 == 0 ? kv.k : kv.v);
  const char* const from = base + (layer * kv.pages + copy.from) * page_bytes;
  char* const to = base + (layer * kv.pages + copy.to) * page_bytes;
  for (std::int64_t i = threadIdx.x * std::int64_t{16}; i < page_bytes; i += kThreads * 16) {
    *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
  }
}

/// Roll over: a thread for every sequence.
__global__ void __launch_bounds__(kThreads)
    roll_over(KvCall call, const KvGrowth* growths, std::int32_t* page_table, std::int32_t* taken) {
  const std::int64_t i = blockIdx.x * std::int64_t{kThreads} + threadIdx.x;
  if (i >= call.count) return;
  const KvGrowth growth = growths[i];
  const int index = growth.length / call.kv.page_size;
  bool take = growth.length >= 0 && growth.length % call.kv.page_size == 0;
  if (take && (growth.sequence < 0 || index >= call.kv.table_stride || growth.page < 0 ||
               growth.page >= call.kv.pages)) {
    if (call.fault != nullptr) *call.fault = 1;
    take = false;
  }
  if (take) page_table[growth.sequence * call.kv.table_stride + index] = growth.page;
  taken[i] = take ? 1 : 0;
}

}  // namespace

// Launch the cache's kernels.
void launch_kv_append(const KvCall& call, void* stream) {
  const std::int64_t units =
      call.tokens * (call.heads + 2 * call.kv.kv_heads) * (call.kv.head_dim / 16);
  const auto blocks = static_cast<unsigned>(ceil_div(units, kThreads));
  auto* const s = static_cast<cudaStream_t>(stream);
  const bool bytes = call.kv.dtype == DType::u8;
  const auto launch = [&](auto kernel) { launch_early(kernel, blocks, kThreads, 0, s, call); };
  switch (call.dtype) {
    case DType::f32: return launch(bytes ? append_rows<float, true> : append_rows<float, false>);
    case DType::f16: return launch(bytes ? append_rows<__half, true> : append_rows<__half, false>);
    default:
      return launch(bytes ? append_rows<__nv_bfloat16, true> : append_rows<__nv_bfloat16, false>);
  }
}

void launch_kv_gather(const KvCall& call, void* stream) {
  const std::int64_t units = call.tokens * 2 * call.kv.kv_heads * (call.kv.head_dim / 8);
  const auto blocks = static_cast<unsigned>(ceil_div(units, kThreads));
  auto* const s = static_cast<cudaStream_t>(stream);
  if (call.kv.dtype == DType::u8) {
    with_activation(call.dtype,
                    [&]<class T>(T*) { gather_bytes<T><<<blocks, kThreads, 0, s>>>(call); });
  } else if (call.kv.dtype == DType::f32) {
    gather_rows<std::uint32_t><<<blocks, kThreads, 0, s>>>(call);
  } else {
    gather_rows<std::uint16_t><<<blocks, kThreads, 0, s>>>(call);
  }
  ROSE_LAUNCH_CHECK("kv_gather");
}

void launch_kv_copy_pages(const KvCall& call, void* stream) {
  const std::int64_t element = call.kv.dtype == DType::f32 ? 4 : call.kv.dtype == DType::u8 ? 1 : 2;
  const std::int64_t bytes =
      static_cast<std::int64_t>(call.kv.kv_heads) * call.kv.page_size * call.kv.head_dim * element;
  const dim3 grid(static_cast<unsigned>(call.count), static_cast<unsigned>(2 * call.kv.layers));
  copy_pages<<<grid, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(call, bytes);
  ROSE_LAUNCH_CHECK("kv_copy_pages");
}

void launch_kv_rollover(const KvCall& call, const KvGrowth* growths, std::int32_t* page_table,
                        std::int32_t* taken, void* stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(call.count, kThreads));
  roll_over<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(call, growths, page_table,
                                                                        taken);
  ROSE_LAUNCH_CHECK("kv_rollover");
}

}  // namespace rose::kernels::gpu
