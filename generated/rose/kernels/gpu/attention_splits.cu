// Attention, one split of the keys to a block.

#include <algorithm>

#include "rose/kernels/gpu/attention_splits.cuh"
#include "rose/kernels/gpu/chain.cuh"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = split_rows;
constexpr int kPiece = 64;  // keys that arrive together

// Divide shared memory.
template <class T, int D>
struct SplitShared {
  static constexpr int tile = numerics::key_tile_of(D), tiles = numerics::key_split / tile;
  static constexpr int pitch = Padded<T, D>::pitch;
  static constexpr int stages = D <= 128 ? 4 : 3;
  static constexpr int score_pitch = numerics::key_split + 8;
  T ring[stages][kPiece * pitch];     // pieces of keys, then of values
  T queries[kRows * pitch];           // of the item whose keys come next
  float scores[kRows * score_pitch];  // each tile's weights later replace its scores
  int row[2][numerics::key_split];    // where the keys of this item, and of the next, are
  TileStates<tiles> states;
};

// Attend to splits of keys, one after the other.
template <class T, int D, bool kBytes>
__global__ void __launch_bounds__(kThreads) attend_splits(AttentionCall call) {
  using Shared = SplitShared<T, D>;
  constexpr int tile = Shared::tile, pitch = Shared::pitch, stages = Shared::stages;
  constexpr int columns = D / kWarps;  // of the output, that a warp computes
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int group = call.heads / call.kv_heads, thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32, g = lane / 4, quad = lane % 4;

  constexpr int own_keys = numerics::key_split / kThreads;
  int found[own_keys];
  const auto find_rows = [&](const SplitItem& item) {
    const int keys = item.keys(group);
    ROSE_UNROLL()
    for (int i = 0; i < own_keys; ++i) {
      const int j = i * kThreads + thread;
      found[i] = j < keys ? key_row(call, item.sequence(), item.kv_head(), item.first_token(),
                                    item.first_key() + j)
                          : -1;
    }
  };
  const auto keep_rows = [&](int* to) {
    ROSE_UNROLL()
    for (int i = 0; i < own_keys; ++i) to[i * kThreads + thread] = found[i];
  };
  // Bring the queries, then keys, then values, in pieces of 64 rows.
  const auto fetch = [&](const SplitItem& item, const int* rows, int pieces, int p, int slot) {
    if (p < 2 * pieces) {
      const bool is_value = p >= pieces;
      const T* const from =
          static_cast<const T*>(is_value ? call.v : call.k) + item.kv_head() * call.head_step;
      const std::int64_t stride = is_value ? call.value_stride : call.key_stride;
      const int* const piece = rows + (is_value ? p - pieces : p) * kPiece;
      const auto row_of = [&](int j) { return piece[j]; };
      if constexpr (kBytes) {
        const float scale =
            byte_scale(is_value ? call.value_scale : call.key_scale, item.kv_head());
        unpack_rows<Padded<T, D>, kPiece, kThreads>(shared.ring[slot],
                                                    reinterpret_cast<const std::uint8_t*>(from),
                                                    stride, scale, thread, row_of);
      } else {
        copy_rows<Padded<T, D>, kPiece, kThreads>(shared.ring[slot], from, stride, thread, row_of);
      }
      constexpr int chunks = D / 8;
      for (int c = thread; p == 0 && c < kRows * chunks; c += kThreads) {
        const int row = c / chunks, d = c % chunks * 8, r = item.first_row() + row;
        const bool there = row < item.rows(group);
        const std::int64_t token = item.first_token() + (there ? r / group : 0);
        copy_async_16(shared_address(shared.queries + row * pitch + d),
                      static_cast<const T*>(call.q) + token * call.q_stride +
                          (item.kv_head() * group + (there ? r % group : 0)) * D + d,
                      there ? 16 : 0);
      }
    }
    copy_async_commit();
  };

  SplitItem item(call, blockIdx.x), next(call, blockIdx.x + std::int64_t{gridDim.x});
  if (item.empty()) return;  // and so are all later ones
  int pieces = (item.keys(group) + kPiece - 1) / kPiece;
  find_rows(item);
  keep_rows(shared.row[0]);
  __syncthreads();
  ROSE_UNROLL()
  for (int p = 0; p < stages - 1; ++p) fetch(item, shared.row[0], pieces, p, p);
  int base = 0;  // how many steps of the ring are over
  for (std::int64_t index = blockIdx.x, turn = 0; !item.empty(); index += gridDim.x, ++turn) {
    // Step through the ring, across the border to the next item.
    const int* const rows = shared.row[turn & 1];
    int* const next_rows = shared.row[(turn + 1) & 1];
    const int next_pieces = (next.keys(group) + kPiece - 1) / kPiece;
    // Long enough that nothing of the next item is asked for before its rows are found.
    const int steps = max(2 * pieces, pieces + stages - 1);
    find_rows(next);
    const SplitItem after(call, index + 2 * std::int64_t{gridDim.x});
    /// Waits for a piece, and asks for the one that takes the place of the last.
    const auto step = [&](int p) -> const T* {
      copy_async_wait<stages - 2>();
      __syncthreads();
      const int ahead = p + stages - 1, slot = (base + ahead) % stages;
      if (ahead < steps) {
        fetch(item, rows, pieces, ahead, slot);
      } else {
        fetch(next, next_rows, next_pieces, ahead - steps, slot);
      }
      return shared.ring[(base + p) % stages];
    };
    // Scores: each warp takes 16 keys of every piece.
    std::uint32_t q[D / 16][4];
    for (int p = 0; p < pieces; ++p) {
      const T* const keys = step(p);
      if (p == 0) {
        ROSE_UNROLL()
        for (int kk = 0; kk < D / 16; ++kk) {
          ldmatrix_x4(q[kk], shared_address(shared.queries + (lane & 15) * pitch + kk * 16 +
                                            (lane >> 4) * 8));
        }
      }
      float s[2][4] = {};
      const std::uint32_t at = shared_address(
          keys + (warp * 16 + (lane & 7) + (lane >> 4) * 8) * pitch + (lane >> 3 & 1) * 8);
      ROSE_UNROLL()
      for (int kk = 0; kk < D / 16; ++kk) {
        std::uint32_t b[4];
        ldmatrix_x4(b, at + static_cast<unsigned>(kk * 16 * sizeof(T)));
        mma_16x8x16<T>(s[0], q[kk], b[0], b[1]);
        mma_16x8x16<T>(s[1], q[kk], b[2], b[3]);
      }
      ROSE_UNROLL()
      for (int j = 0; j < 2; ++j) {
        ROSE_UNROLL()
        for (int h = 0; h < 2; ++h) {
          *reinterpret_cast<float2*>(shared.scores + (g + 8 * h) * Shared::score_pitch +
                                     p * kPiece + warp * 16 + j * 8 + 2 * quad) =
              make_float2(s[j][2 * h], s[j][2 * h + 1]);
        }
      }
    }
    keep_rows(next_rows);
    __syncthreads();
    // Weights: each warp takes whole tiles, as a warp of the rows kernel does.
    const int limit[2] = {item.limit(g, group), item.limit(g + 8, group)};
    constexpr int own = (Shared::tiles + kWarps - 1) / kWarps;
    float s[own][tile / 8][4];
    ROSE_UNROLL()
    for (int o = 0; o < own; ++o) {
      const int t = o * kWarps + warp;
      ROSE_UNROLL()
      for (int h = 0; h < 2; ++h) {
        ROSE_UNROLL()
        for (int j = 0; j < tile / 8; ++j) {
          const int column = t * tile + j * 8 + 2 * quad;
          const float2 pair = *reinterpret_cast<const float2*>(
              shared.scores + (g + 8 * h) * Shared::score_pitch + column);
          s[o][j][2 * h] = column < limit[h] ? pair.x : -INFINITY;
          s[o][j][2 * h + 1] = column + 1 < limit[h] ? pair.y : -INFINITY;
        }
      }
      shared.states.note_max(s[o], t, call.factor);
    }
    __syncthreads();
    ROSE_UNROLL()
    for (int o = 0; o < own; ++o) {
      const int t = o * kWarps + warp;
      constexpr int pitch_of_weights =
          Shared::score_pitch * static_cast<int>(sizeof(float) / sizeof(T));
      shared.states.soften_tile(s[o], t, call.factor,
                                reinterpret_cast<T*>(shared.scores + t * tile), pitch_of_weights);
    }
    // Values: each warp takes a quarter of the output's columns, keys ascending by 16.
    float open[columns / 8][4] = {};
    float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int p = 0; p < pieces; ++p) {
      const T* const values = step(pieces + p);
      if (p * kPiece % tile == 0) {
        shared.states.begin_tile(p * kPiece / tile, open, max, sum);
      }
      ROSE_UNROLL()
      for (int kk = 0; kk < kPiece / 16; ++kk) {
        const int key = p * kPiece + kk * 16, t = key / tile;
        std::uint32_t w[4];
        ldmatrix_x4(
            w, shared_address(reinterpret_cast<const T*>(
                                  shared.scores + (lane & 15) * Shared::score_pitch + t * tile) +
                              (key - t * tile) + (lane >> 4) * 8));
        const T* const at =
            values + (kk * 16 + (lane & 7) + (lane >> 3 & 1) * 8) * pitch + warp * columns;
        ROSE_UNROLL()
        for (int j = 0; j < columns / 16; ++j) {
          std::uint32_t b[4];
          ldmatrix_x4_transposed(b, shared_address(at + j * 16 + (lane >> 4) * 8));
          mma_16x8x16<T>(open[2 * j], w, b[0], b[1]);
          mma_16x8x16<T>(open[2 * j + 1], w, b[2], b[3]);
        }
        if constexpr (columns % 16 != 0) {
          std::uint32_t b[4];  // the last eight columns, twice: the second pair is not used
          ldmatrix_x4_transposed(b, shared_address(at + columns / 16 * 16));
          mma_16x8x16<T>(open[columns / 8 - 1], w, b[0], b[1]);
        }
      }
    }
    for (int p = 2 * pieces; p < steps; ++p) step(p);
    store_split<T, D>(call, item, open, max, sum, warp * columns, warp == 0);
    base += steps;
    item = next;
    next = after;
    pieces = next_pieces;
  }
}

// Merge the splits left to right.

/// A warp per query row; four blocks per item, which is 16 rows of one key head.
constexpr int kMergeRows = 4;

template <class T, int D>
__global__ void __launch_bounds__(32 * kMergeRows) merge_splits(AttentionCall call) {
  constexpr int parts = kRows / kMergeRows;
  const int index = static_cast<int>(blockIdx.x) / parts;
  const int4 item = __ldg(reinterpret_cast<const int4*>(call.items) + index);
  await_previous();  // all threads: who waits for this kernel counts on what came before it, too
  if (item.x < 0) return;
  const Span span(call, item.x);
  const int group = call.heads / call.kv_heads, lane = static_cast<int>(threadIdx.x) % 32;
  const int row =
      static_cast<int>(blockIdx.x) % parts * kMergeRows + static_cast<int>(threadIdx.x) / 32;
  const int r = (item.y >> 16 << 4) + row, splits = item.w;
  if (r >= span.tokens * group) return;
  constexpr std::int64_t step = kRows * (D + 2);
  constexpr int words = D / 32;
  const float* part = call.partials + item.z * step + row * (D + 2);
  float o[words], max = part[D], sum = part[D + 1];
  ROSE_UNROLL()
  for (int i = 0; i < words; ++i) o[i] = part[i * 32 + lane];
  ROSE_UNROLL(8)
  for (int s = 1; s < splits; ++s) {
    part += step;
    const Merge merge(max, part[D]);
    max = merge.max;
    sum = merge(sum, part[D + 1]);
    ROSE_UNROLL()
    for (int i = 0; i < words; ++i) o[i] = merge(o[i], part[i * 32 + lane]);
  }
  const float scale = inverse(sum);
  const std::int64_t token = span.first_token + r / group;
  const int head = (item.y & 0xffff) * group + r % group;
  T* const out = static_cast<T*>(call.out) + token * call.out_stride + head * D;
  ROSE_UNROLL()
  for (int i = 0; i < words; ++i) out[i * 32 + lane] = from_float<T>(o[i] * scale);
  if (lane == 0 && call.lse != nullptr) {
    call.lse[token * call.heads + head] = log_sum_exp(max, sum);
  }
}

// Launch the splits, and the merge.
template <class T, int D>
void launch_split(const AttentionCall& call, cudaStream_t stream) {
  constexpr int bytes = sizeof(SplitShared<T, D>);
  static_assert(bytes <= (D <= 128 ? 113 : 227) * 1024);
  const auto launch = [&](auto kernel) {
    allow_shared_memory(kernel, bytes);
    int device = 0, processors = 0, resident = 0;
    ROSE_CUDA_CHECK(cudaGetDevice(&device));
    ROSE_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    ROSE_CUDA_CHECK(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, bytes));
    const auto blocks = static_cast<unsigned>(
        std::min<std::int64_t>(call.item_count, std::max(1, resident) * processors));
    kernel<<<blocks, kThreads, bytes, stream>>>(call);
  };
  call.bytes ? launch(attend_splits<T, D, true>) : launch(attend_splits<T, D, false>);
  ROSE_LAUNCH_CHECK("attention");
}

template <class T, int D>
void launch_merge(const AttentionCall& call, cudaStream_t stream) {
  constexpr unsigned parts = kRows / kMergeRows;
  launch_early(merge_splits<T, D>, static_cast<unsigned>(call.item_count) * parts, 32 * kMergeRows,
               0, stream, call);
}

template <class T>
void launch(const AttentionCall& call, cudaStream_t stream) {
  switch (call.head_dim) {
    case 64: return launch_split<T, 64>(call, stream);
    case 96: return launch_split<T, 96>(call, stream);
    case 128: return launch_split<T, 128>(call, stream);
    default: return launch_split<T, 256>(call, stream);
  }
}
template <class T>
void launch_merge(const AttentionCall& call, cudaStream_t stream) {
  switch (call.head_dim) {
    case 64: return launch_merge<T, 64>(call, stream);
    case 96: return launch_merge<T, 96>(call, stream);
    case 128: return launch_merge<T, 128>(call, stream);
    default: return launch_merge<T, 256>(call, stream);
  }
}

// Choose a kernel.
}  // namespace

void launch_attention_splits(const AttentionCall& call, void* stream) {
  if (call.dtype == DType::f32) return launch_attention_fp32(call, true, stream);
  auto* const s = static_cast<cudaStream_t>(stream);
  call.dtype == DType::f16 ? launch<__half>(call, s) : launch<__nv_bfloat16>(call, s);
}

void launch_attention_merge(const AttentionCall& call, void* stream) {
  auto* const s = static_cast<cudaStream_t>(stream);
  switch (call.dtype) {
    case DType::f32: return launch_merge<float>(call, s);
    case DType::f16: return launch_merge<__half>(call, s);
    default: return launch_merge<__nv_bfloat16>(call, s);
  }
}

}  // namespace rose::kernels::gpu
