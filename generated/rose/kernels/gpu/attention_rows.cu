// Attention, many query rows to a block.

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;  // query rows of a block
constexpr int kItemRows = 128;      // and of a work item, which is two blocks

// Divide shared memory.
template <class T, int D>
struct RowsShared {
  static constexpr int tile = numerics::key_tile_of(D);
  static constexpr int pitch = Padded<T, D>::pitch;
  static constexpr bool query_in_registers = D <= 128;
  T keys[tile * pitch];
  T values[tile * pitch];
  T queries[query_in_registers ? 8 : kRows * pitch];
  float closed[D / 2 * kThreads];  // the merged splits' O, element i of a thread at [i][thread]
  int row[2][tile];                // which key rows a tile is made of
};

// Walk all keys of 64 query rows.
template <class T, int D, bool kBytes>
__global__ void __launch_bounds__(kThreads, D <= 128 ? 2 : 1) attend_rows(AttentionCall call) {
  using Shared = RowsShared<T, D>;
  constexpr int tile = Shared::tile, pitch = Shared::pitch;
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  // Read the item: which rows, and how many keys they see.
  const RowItem item(call);
  if (item.empty()) return;
  const int sequence = item.sequence(), kv_head = item.kv_head();
  const Span span(call, sequence);
  const int group = call.heads / call.kv_heads, thread = static_cast<int>(threadIdx.x);
  const int first_row = item.first_row() + static_cast<int>(blockIdx.y) * kRows;
  if (first_row >= span.tokens * group) return;
  const int warp = thread / 32, lane = thread % 32, g = lane / 4, quad = lane % 4;
  const int row_count = min(kRows, span.tokens * group - first_row);
  const int first_key = item.first_key(call);
  const int keys = item.keys(call, span.limit((first_row + row_count - 1) / group));
  const int item_limit =
      span.limit((min(item.first_row() + kItemRows, span.tokens * group) - 1) / group);
  const int seen_by_all = span.limit(first_row / group) - first_key;
  const T* const k = static_cast<const T*>(call.k) + kv_head * call.head_step;
  const T* const v = static_cast<const T*>(call.v) + kv_head * call.head_step;
  // This thread's two rows, g and g + 8 of its warp's 16, and their queries.
  int limit[2];
  std::int64_t at[2];  // token * heads + head, -1: no such row
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int row = warp * 16 + g + 8 * h, r = first_row + row;
    limit[h] = row < row_count ? span.limit(r / group) - first_key : 0;
    at[h] = row < row_count ? static_cast<std::int64_t>(span.first_token + r / group) * call.heads +
                                  kv_head * group + r % group
                            : -1;
  }
  const T* query[2];
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    query[h] = at[h] < 0 ? nullptr
                         : static_cast<const T*>(call.q) + at[h] / call.heads * call.q_stride +
                               at[h] % call.heads * D;
  }
  const auto query_word = [&](int h, int d) {
    return query[h] == nullptr ? 0u : __ldg(reinterpret_cast<const unsigned*>(query[h] + d));
  };
  std::uint32_t q[Shared::query_in_registers ? D / 16 : 1][4];
  if constexpr (Shared::query_in_registers) {
    ROSE_UNROLL()
    for (int kk = 0; kk < D / 16; ++kk) {
      ROSE_UNROLL()
      for (int i = 0; i < 4; ++i) q[kk][i] = query_word(i % 2, kk * 16 + i / 2 * 8 + 2 * quad);
    }
  } else {
    for (int d = 2 * quad; d < D; d += 8) {
      ROSE_UNROLL()
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<unsigned*>(shared.queries + (warp * 16 + g + 8 * h) * pitch + d) =
            query_word(h, d);
      }
    }
  }
  const auto find_rows = [&](int t) {
    for (int j = thread; j < tile; j += kThreads) {
      const int position = t * tile + j;
      shared.row[t & 1][j] =
          position < keys ? key_row(call, sequence, kv_head, span.first_token, first_key + position)
                          : -1;
    }
  };
  const int tiles = (keys + tile - 1) / tile, tiles_per_split = call.split / tile;
  float open[D / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  ClosedSplits<D, kThreads> closed{shared.closed + thread};
  const auto fetch = [&](T* to, const T* from, std::int64_t stride, int t) {
    const auto row_of = [&](int j) { return shared.row[t & 1][j]; };
    if constexpr (kBytes) {
      const float scale = byte_scale(from == k ? call.key_scale : call.value_scale, kv_head);
      if (t < tiles)
        unpack_rows<Padded<T, D>, tile, kThreads>(to, reinterpret_cast<const std::uint8_t*>(from),
                                                  stride, scale, thread, row_of);
    } else {
      if (t < tiles) copy_rows<Padded<T, D>, tile, kThreads>(to, from, stride, thread, row_of);
    }
    copy_async_commit();  // behind the last tile, an empty group keeps the count
  };
  if (tiles > 0) {
    find_rows(0);
    __syncthreads();
    fetch(shared.keys, k, call.key_stride, 0);
    fetch(shared.values, v, call.value_stride, 0);
  }
  for (int t = 0; t < tiles; ++t) {
    if (t > 0 && t % tiles_per_split == 0) {
      closed.fold(t == tiles_per_split, open, max, sum);
      ROSE_UNROLL()
      for (int i = 0; i < D / 2; ++i) open[i / 4][i % 4] = 0.0f;
      ROSE_UNROLL()
      for (int h = 0; h < 2; ++h) max[h] = -INFINITY, sum[h] = 0.0f;
    }
    // Scores: 16 by a tile, the head dimension ascending by 16.
    copy_async_wait<1>();
    if (t + 1 < tiles) find_rows(t + 1);
    __syncthreads();
    float s[tile / 8][4] = {};
    {
      const std::uint32_t base = shared_address(
          shared.keys + ((lane & 7) + (lane >> 4) * 8) * pitch + (lane >> 3 & 1) * 8);
      ROSE_UNROLL()
      for (int kk = 0; kk < D / 16; ++kk) {
        if constexpr (!Shared::query_in_registers) {
          ldmatrix_x4(q[0], shared_address(shared.queries + (warp * 16 + (lane & 15)) * pitch +
                                           kk * 16 + (lane >> 4) * 8));
        }
        ROSE_UNROLL()
        for (int j = 0; j < tile / 16; ++j) {
          std::uint32_t b[4];
          ldmatrix_x4(b, base + static_cast<unsigned>((j * 16 * pitch + kk * 16) * sizeof(T)));
          mma_16x8x16<T>(s[2 * j], q[Shared::query_in_registers ? kk : 0], b[0], b[1]);
          mma_16x8x16<T>(s[2 * j + 1], q[Shared::query_in_registers ? kk : 0], b[2], b[3]);
        }
      }
    }
    __syncthreads();
    fetch(shared.keys, k, call.key_stride, t + 1);
    // Mask, weigh, and rescale what came before.
    if ((t + 1) * tile > seen_by_all || row_count < kRows) mask(s, t * tile, limit);
    float by[2];
    weigh(s, call.factor, max, sum, by);
    ROSE_UNROLL()
    for (int i = 0; i < D / 2; ++i) open[i / 4][i % 4] *= by[i % 4 / 2];
    // Add the values, keys ascending by 16.
    copy_async_wait<1>();
    __syncthreads();
    {
      const std::uint32_t base = shared_address(
          shared.values + ((lane & 7) + (lane >> 3 & 1) * 8) * pitch + (lane >> 4) * 8);
      ROSE_UNROLL()
      for (int kk = 0; kk < tile / 16; ++kk) {
        std::uint32_t p[4];
        as_left<T>(p, s, kk);
        ROSE_UNROLL()
        for (int j = 0; j < D / 16; ++j) {
          std::uint32_t b[4];
          ldmatrix_x4_transposed(
              b, base + static_cast<unsigned>((kk * 16 * pitch + j * 16) * sizeof(T)));
          mma_16x8x16<T>(open[2 * j], p, b[0], b[1]);
          mma_16x8x16<T>(open[2 * j + 1], p, b[2], b[3]);
        }
      }
    }
    __syncthreads();
    fetch(shared.values, v, call.value_stride, t + 1);
  }
  closed.fold(tiles <= tiles_per_split, open, max, sum);
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    if (at[h] < 0) continue;
    if (item.part()) {
      const int row = first_row - item.first_row() + warp * 16 + g + 8 * h;
      closed.store_part(item.at(call, row, item_limit), h);
    } else {
      closed.template store<T>(call, h, at[h] / call.heads, at[h] % call.heads);
    }
  }
}

// Launch.
template <class T, int D>
void launch(const AttentionCall& call, cudaStream_t stream) {
  constexpr int bytes = sizeof(RowsShared<T, D>);
  static_assert(bytes <= 227 * 1024);
  const dim3 blocks(static_cast<unsigned>(call.item_count), kItemRows / kRows);
  const auto launch = [&](auto kernel) {
    allow_shared_memory(kernel, bytes);
    kernel<<<blocks, kThreads, bytes, stream>>>(call);
  };
  call.bytes ? launch(attend_rows<T, D, true>) : launch(attend_rows<T, D, false>);
  ROSE_LAUNCH_CHECK("attention");
}

template <class T>
void launch(const AttentionCall& call, cudaStream_t stream) {
  switch (call.head_dim) {
    case 64: return launch<T, 64>(call, stream);
    case 96: return launch<T, 96>(call, stream);
    case 128: return launch<T, 128>(call, stream);
    default: return launch<T, 256>(call, stream);
  }
}

}  // namespace

void launch_attention_rows(const AttentionCall& call, void* stream) {
  if (call.dtype == DType::f32) return launch_attention_fp32(call, false, stream);
  if (!call.bytes && launch_attention_warpgroups(call, stream)) return;
  auto* const s = static_cast<cudaStream_t>(stream);
  call.dtype == DType::f16 ? launch<__half>(call, s) : launch<__nv_bfloat16>(call, s);
}

void launch_upload(const void* host, std::size_t bytes, void* device, void* stream) {
  ROSE_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice,
                                  static_cast<cudaStream_t>(stream)));
}

}  // namespace rose::kernels::gpu
