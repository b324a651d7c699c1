// Attention, one split of the keys to a block.

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRows = 16;   // query rows of a block: one tensor-core tile
constexpr int kPiece = 64;  // keys that arrive together

// Divide shared memory.
template <class T, int D>
struct SplitShared {
  static constexpr int tile = numerics::key_tile_of(D), tiles = numerics::key_split / tile;
  static constexpr int pitch = D + 8;
  static constexpr int stages = D <= 128 ? 4 : 3;
  static constexpr int score_pitch = numerics::key_split + 8;
  T ring[stages][kPiece * pitch];     // pieces of keys, then of values
  float scores[kRows * score_pitch];  // each tile's weights later replace its scores
  int row[numerics::key_split];       // where the split's keys are
  float max[tiles][kRows];            // of each tile, scaled
  float rescale[tiles][kRows];        // what earlier sums are multiplied with
  float sum[tiles][kRows][4];         // of each tile, by lane of the quad
};

// Attend to one split of the keys.
template <class T, int D>
__global__ void __launch_bounds__(kThreads) attend_split(AttentionCall call) {
  using Shared = SplitShared<T, D>;
  constexpr int tile = Shared::tile, pitch = Shared::pitch, stages = Shared::stages;
  constexpr int columns = D / kWarps;  // of the output, that a warp computes
  extern __shared__ __align__(128) unsigned char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int4 item = __ldg(reinterpret_cast<const int4*>(call.items) + blockIdx.x);
  const int sequence = item.x;
  if (sequence < 0) return;
  const int kv_head = item.y & 0xffff, first_row = item.y >> 16 << 4, first = item.z * call.split;
  const int slot = item.w;  // -1: this split is all, write the result
  const Span span(call, sequence);
  const int group = call.heads / call.kv_heads, thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, lane = thread % 32, g = lane / 4, quad = lane % 4;
  const int row_count = min(kRows, span.tokens * group - first_row);
  const int keys = min(call.split, span.limit((first_row + row_count - 1) / group) - first);
  const T* const k = static_cast<const T*>(call.k) + kv_head * call.head_step;
  const T* const v = static_cast<const T*>(call.v) + kv_head * call.head_step;

  for (int j = thread; j < (keys + kPiece - 1) / kPiece * kPiece; j += kThreads) {
    shared.row[j] = key_row(call, sequence, kv_head, first + j, first + keys);
  }
  // This thread's two rows, g and g + 8, and their queries.
  int limit[2];
  std::int64_t at[2];
  std::uint32_t q[D / 16][4];
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int row = g + 8 * h, r = first_row + row;
    limit[h] = row < row_count ? span.limit(r / group) - first : 0;
    const std::int64_t token = span.first_token + r / group;
    const int head = kv_head * group + r % group;
    at[h] = row < row_count ? token * call.heads + head : -1;
    const T* const query =
        static_cast<const T*>(call.q) + (row < row_count ? token * call.q_stride + head * D : 0);
    ROSE_UNROLL()
    for (int kk = 0; kk < D / 16; ++kk) {
      ROSE_UNROLL()
      for (int i = 0; i < 2; ++i) {
        q[kk][h + 2 * i] =
            row < row_count
                ? __ldg(reinterpret_cast<const unsigned*>(query + kk * 16 + i * 8 + 2 * quad))
                : 0u;
      }
    }
  }
  __syncthreads();
  const int pieces = (keys + kPiece - 1) / kPiece;  // of keys; as many of values follow
  // Bring pieces of 64 keys, then of 64 values, through one ring.
  const auto fetch = [&](int p) {
    if (p < 2 * pieces) {
      const bool is_value = p >= pieces;
      const T* const from = is_value ? v : k;
      const std::int64_t stride = is_value ? call.value_stride : call.key_stride;
      const int* const rows = shared.row + (is_value ? p - pieces : p) * kPiece;
      T* const to = shared.ring[p % stages];
      constexpr int chunks = D / 8;
      ROSE_UNROLL()
      for (int c = 0; c < kPiece * chunks / kThreads; ++c) {
        const int at16 = c * kThreads + thread, j = at16 / chunks, d = at16 % chunks * 8;
        const int row = rows[j];
        copy_async_16(shared_address(to + j * pitch + d), from + (row < 0 ? 0 : row) * stride + d,
                      row < 0 ? 0 : 16);
      }
    }
    copy_async_commit();
  };
  ROSE_UNROLL()
  for (int p = 0; p < stages - 1; ++p) fetch(p);
  // Scores: each warp takes 16 keys of every piece.
  for (int p = 0; p < pieces; ++p) {
    copy_async_wait<stages - 2>();
    __syncthreads();
    fetch(p + stages - 1);
    float s[2][4] = {};
    const std::uint32_t base =
        shared_address(shared.ring[p % stages] +
                       (warp * 16 + (lane & 7) + (lane >> 4) * 8) * pitch + (lane >> 3 & 1) * 8);
    ROSE_UNROLL()
    for (int kk = 0; kk < D / 16; ++kk) {
      std::uint32_t b[4];
      ldmatrix_x4(b, base + static_cast<unsigned>(kk * 16 * sizeof(T)));
      mma_16x8x16<T>(s[0], q[kk], b[0], b[1]);
      mma_16x8x16<T>(s[1], q[kk], b[2], b[3]);
    }
    ROSE_UNROLL()
    for (int j = 0; j < 2; ++j) {
      ROSE_UNROLL()
      for (int h = 0; h < 2; ++h) {
        *reinterpret_cast<float2*>(shared.scores + (g + 8 * h) * Shared::score_pitch + p * kPiece +
                                   warp * 16 + j * 8 + 2 * quad) =
            make_float2(s[j][2 * h], s[j][2 * h + 1]);
      }
    }
  }
  __syncthreads();
  // Weights: each warp takes whole tiles, as a warp of the rows kernel does.
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
      const float max = largest(s[o], h) * call.factor;
      if (quad == 0) shared.max[t][g + 8 * h] = max;
    }
  }
  __syncthreads();
  ROSE_UNROLL()
  for (int o = 0; o < own; ++o) {
    const int t = o * kWarps + warp;
    float sums[2];
    ROSE_UNROLL()
    for (int h = 0; h < 2; ++h) {
      float before = -INFINITY;
      for (int u = 0; u < t; ++u) before = fmaxf(before, shared.max[u][g + 8 * h]);
      const float base = anchor(fmaxf(before, shared.max[t][g + 8 * h]));
      sums[h] = soften(s[o], h, call.factor, base);
      shared.sum[t][g + 8 * h][quad] = sums[h];
      if (quad == 0) shared.rescale[t][g + 8 * h] = rescale(before, base);
      // The weights, rounded, take the place of this tile's own scores.
      T* const weights =
          reinterpret_cast<T*>(shared.scores + (g + 8 * h) * Shared::score_pitch + t * tile);
      ROSE_UNROLL()
      for (int j = 0; j < tile / 8; ++j) {
        *reinterpret_cast<std::uint32_t*>(weights + j * 8 + 2 * quad) =
            pack<T>(s[o][j][2 * h], s[o][j][2 * h + 1]);
      }
    }
  }
  // Values: each warp takes a quarter of the output's columns, keys ascending by 16.
  float open[columns / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};
  for (int p = 0; p < pieces; ++p) {
    copy_async_wait<stages - 2>();
    __syncthreads();
    fetch(pieces + p + stages - 1);
    if (p * kPiece % tile == 0) {
      const int t = p * kPiece / tile;
      float factor[2];
      ROSE_UNROLL()
      for (int h = 0; h < 2; ++h) {
        factor[h] = shared.rescale[t][g + 8 * h];
        sum[h] = fmaf(sum[h], factor[h], shared.sum[t][g + 8 * h][quad]);
        max[h] = fmaxf(max[h], shared.max[t][g + 8 * h]);
      }
      ROSE_UNROLL()
      for (int j = 0; j < columns / 8; ++j) {
        ROSE_UNROLL()
        for (int i = 0; i < 4; ++i) open[j][i] *= factor[i / 2];
      }
    }
    const T* const piece = shared.ring[(pieces + p) % stages];
    ROSE_UNROLL()
    for (int kk = 0; kk < kPiece / 16; ++kk) {
      const int key = p * kPiece + kk * 16, t = key / tile;
      std::uint32_t w[4];
      ldmatrix_x4(w,
                  shared_address(reinterpret_cast<const T*>(
                                     shared.scores + (lane & 15) * Shared::score_pitch + t * tile) +
                                 (key - t * tile) + (lane >> 4) * 8));
      const T* const rows =
          piece + (kk * 16 + (lane & 7) + (lane >> 3 & 1) * 8) * pitch + warp * columns;
      ROSE_UNROLL()
      for (int j = 0; j < columns / 16; ++j) {
        std::uint32_t b[4];
        ldmatrix_x4_transposed(b, shared_address(rows + j * 16 + (lane >> 4) * 8));
        mma_16x8x16<T>(open[2 * j], w, b[0], b[1]);
        mma_16x8x16<T>(open[2 * j + 1], w, b[2], b[3]);
      }
      if constexpr (columns % 16 != 0) {
        std::uint32_t b[4];  // the second pair would lie in the next warp's columns: read, not used
        ldmatrix_x4_transposed(b, shared_address(rows + columns / 16 * 16));
        mma_16x8x16<T>(open[columns / 8 - 1], w, b[0], b[1]);
      }
    }
  }
  // Store the result, or this split's part of it.
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    if (at[h] < 0) continue;
    const float total = quad_sum(sum[h]);
    if (slot < 0) {
      const float scale = inverse(total);
      T* const out = static_cast<T*>(call.out) + at[h] / call.heads * call.out_stride +
                     at[h] % call.heads * D + warp * columns;
      ROSE_UNROLL()
      for (int j = 0; j < columns / 8; ++j) {
        *reinterpret_cast<std::uint32_t*>(out + j * 8 + 2 * quad) =
            pack<T>(open[j][2 * h] * scale, open[j][2 * h + 1] * scale);
      }
      if (warp == 0 && quad == 0 && call.lse != nullptr)
        call.lse[at[h]] = log_sum_exp(max[h], total);
    } else {
      float* const part =
          call.partials + (static_cast<std::int64_t>(slot) * kRows + g + 8 * h) * (D + 2);
      ROSE_UNROLL()
      for (int j = 0; j < columns / 8; ++j) {
        *reinterpret_cast<float2*>(part + warp * columns + j * 8 + 2 * quad) =
            make_float2(open[j][2 * h], open[j][2 * h + 1]);
      }
      if (warp == 0 && quad == 0) *reinterpret_cast<float2*>(part + D) = make_float2(max[h], total);
    }
  }
}

// Merge the splits left to right.

/// A warp per query row; a block per item: 16 rows of one key head.
template <class T, int D>
__global__ void __launch_bounds__(32 * kRows) merge_splits(AttentionCall call) {
  const int4 item = __ldg(reinterpret_cast<const int4*>(call.items) + blockIdx.x);
  const int sequence = item.x;
  if (sequence < 0) return;
  const int kv_head = item.y & 0xffff, first_row = item.y >> 16 << 4, slot = item.z,
            splits = item.w;
  const Span span(call, sequence);
  const int group = call.heads / call.kv_heads;
  const int row = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int r = first_row + row;
  if (r >= span.tokens * group) return;
  constexpr std::int64_t step = kRows * (D + 2);
  const float* part = call.partials + slot * step + row * (D + 2);
  constexpr int words = D / 32;
  float o[words], max = part[D], sum = part[D + 1];
  ROSE_UNROLL()
  for (int i = 0; i < words; ++i) o[i] = part[i * 32 + lane];
  ROSE_UNROLL(4)
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
  const int head = kv_head * group + r % group;
  T* const out = static_cast<T*>(call.out) + token * call.out_stride + head * D;
  ROSE_UNROLL()
  for (int i = 0; i < words; ++i) {
    const std::uint32_t bits = pack<T>(o[i] * scale, 0.0f);
    reinterpret_cast<std::uint16_t*>(out)[i * 32 + lane] = static_cast<std::uint16_t>(bits);
  }
  if (lane == 0 && call.lse != nullptr) {
    call.lse[token * call.heads + head] = log_sum_exp(max, sum);
  }
}

// Launch the splits, and the merge.
template <class T, int D>
void launch_split(const AttentionCall& call, cudaStream_t stream) {
  constexpr int bytes = sizeof(SplitShared<T, D>);
  static_assert(bytes <= 227 * 1024);
  allow_shared_memory(attend_split<T, D>, bytes);
  attend_split<T, D><<<static_cast<unsigned>(call.item_count), kThreads, bytes, stream>>>(call);
  ROSE_LAUNCH_CHECK("attention");
}

template <class T, int D>
void launch_merge(const AttentionCall& call, cudaStream_t stream) {
  merge_splits<T, D><<<static_cast<unsigned>(call.item_count), 32 * kRows, 0, stream>>>(call);
  ROSE_LAUNCH_CHECK("attention");
}

template <class T>
void launch(const AttentionCall& call, cudaStream_t stream, bool merge) {
  switch (call.head_dim) {
    case 64: return merge ? launch_merge<T, 64>(call, stream) : launch_split<T, 64>(call, stream);
    case 96: return merge ? launch_merge<T, 96>(call, stream) : launch_split<T, 96>(call, stream);
    case 128:
      return merge ? launch_merge<T, 128>(call, stream) : launch_split<T, 128>(call, stream);
    default: return merge ? launch_merge<T, 256>(call, stream) : launch_split<T, 256>(call, stream);
  }
}

}  // namespace

void launch_attention_splits(const AttentionCall& call, void* stream) {
  auto* const s = static_cast<cudaStream_t>(stream);
  call.half ? launch<__half>(call, s, false) : launch<__nv_bfloat16>(call, s, false);
}

void launch_attention_merge(const AttentionCall& call, void* stream) {
  auto* const s = static_cast<cudaStream_t>(stream);
  call.half ? launch<__half>(call, s, true) : launch<__nv_bfloat16>(call, s, true);
}

}  // namespace rose::kernels::gpu
