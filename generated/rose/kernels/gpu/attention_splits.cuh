// What kernels for splits of the keys share.

#pragma once

#include "rose/kernels/gpu/attention.cuh"
#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

inline constexpr int split_rows = 16;  // query rows of a block: one tensor-core tile

// Read a work item: all that a block must know, in one access.
#ifdef __CUDACC__

struct SplitItem {
  int4 low, high;

  __device__ __forceinline__ SplitItem(const AttentionCall& call, std::int64_t index) {
    low = make_int4(-1, 0, 0, 0);
    high = make_int4(0, 0, 0, 0);
    if (index >= call.item_count) return;
    const int4* const at = reinterpret_cast<const int4*>(call.items) + 2 * index;
    low = __ldg(at);
    high = __ldg(at + 1);
  }
  __device__ __forceinline__ bool empty() const { return low.x < 0; }
  __device__ __forceinline__ int sequence() const { return low.x; }
  __device__ __forceinline__ int kv_head() const { return low.y & 0xffff; }
  __device__ __forceinline__ int first_row() const { return low.y >> 16 << 4; }
  __device__ __forceinline__ int first_key() const { return low.z * numerics::key_split; }
  __device__ __forceinline__ int slot() const { return low.w; }  // -1: this split is all
  __device__ __forceinline__ int first_token() const { return high.x; }
  __device__ __forceinline__ int rows(int group) const {
    return min(split_rows, high.y * group - first_row());
  }
  /// How many of the split's keys a row of this item sees; more than the split holds, or none.
  __device__ __forceinline__ int limit(int row, int group) const {
    return max(0, high.z - high.y + (first_row() + row) / group + 1) - first_key();
  }
  __device__ __forceinline__ int keys(int group) const {
    return empty() ? 0 : max(0, min(numerics::key_split, limit(rows(group) - 1, group)));
  }
};

// What the warps of a block tell each other about the tiles of a split.
template <int Tiles>
struct TileStates {
  float max[Tiles][split_rows];      // of each tile, scaled
  float rescale[Tiles][split_rows];  // what earlier sums are multiplied with
  float sum[Tiles][split_rows][4];   // of each tile, by lane of the quad

  /// The largest scores of tile t, whose scores this warp holds. All warps must have done this before soften_tile.
  template <int N>
  __device__ __forceinline__ void note_max(const float (&s)[N][4], int t, float factor) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4;
    ROSE_UNROLL()
    for (int h = 0; h < 2; ++h) {
      const float largest_of = largest(s, h) * factor;
      if (threadIdx.x % 4 == 0) max[t][g + 8 * h] = largest_of;
    }
  }
  /// Turns them into weights; row r of the tile begins at weights + r * pitch.
  template <class T, int N>
  __device__ __forceinline__ void soften_tile(float (&s)[N][4], int t, float factor, T* weights,
                                              int pitch) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, quad = static_cast<int>(threadIdx.x) % 4;
    ROSE_UNROLL()
    for (int h = 0; h < 2; ++h) {
      const int row = g + 8 * h;
      float before = -INFINITY;
      for (int u = 0; u < t; ++u) before = fmaxf(before, max[u][row]);
      const float base = anchor(fmaxf(before, max[t][row]));
      sum[t][row][quad] = soften(s, h, factor, base);
      if (quad == 0) rescale[t][row] = gpu::rescale(before, base);
      ROSE_UNROLL()
      for (int j = 0; j < N; ++j) {
        *reinterpret_cast<std::uint32_t*>(weights + row * pitch + j * 8 + 2 * quad) =
            pack<T>(s[j][2 * h], s[j][2 * h + 1]);
      }
    }
  }
  /// Begins tile t of the values: sums, maxima and outputs so far are brought to its maximum.
  template <int N>
  __device__ __forceinline__ void begin_tile(int t, float (&open)[N][4], float (&maxima)[2],
                                             float (&sums)[2]) const {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, quad = static_cast<int>(threadIdx.x) % 4;
    ROSE_UNROLL()
    for (int h = 0; h < 2; ++h) {
      const int row = g + 8 * h;
      const float by = rescale[t][row];
      sums[h] = fmaf(sums[h], by, sum[t][row][quad]);
      maxima[h] = fmaxf(maxima[h], max[t][row]);
      ROSE_UNROLL()
      for (int j = 0; j < N; ++j) {
        open[j][2 * h] *= by;
        open[j][2 * h + 1] *= by;
      }
    }
  }
};

// Store the result, or this split's part of it.

/// open: a warp's columns, from `first` on, of 16 rows. sum: this lane's part. One warp of the block says `is_first`.
template <class T, int D, int N>
__device__ __forceinline__ void store_split(const AttentionCall& call, const SplitItem& item,
                                            const float (&open)[N][4], const float (&max)[2],
                                            const float (&sum)[2], int first, bool is_first) {
  const int group = call.heads / call.kv_heads;
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, quad = static_cast<int>(threadIdx.x) % 4;
  const float totals[2] = {quad_sum(sum[0]), quad_sum(sum[1])};  // all lanes, before rows differ
  ROSE_UNROLL()
  for (int h = 0; h < 2; ++h) {
    const int row = g + 8 * h, r = item.first_row() + row;
    if (row >= item.rows(group)) continue;
    const std::int64_t token = item.first_token() + r / group;
    const int head = item.kv_head() * group + r % group;
    if (item.slot() < 0) {
      const float scale = inverse(totals[h]);
      T* const out = static_cast<T*>(call.out) + token * call.out_stride + head * D + first;
      ROSE_UNROLL()
      for (int j = 0; j < N; ++j) {
        *reinterpret_cast<std::uint32_t*>(out + j * 8 + 2 * quad) =
            pack<T>(open[j][2 * h] * scale, open[j][2 * h + 1] * scale);
      }
      if (is_first && quad == 0 && call.lse != nullptr) {
        call.lse[token * call.heads + head] = log_sum_exp(max[h], totals[h]);
      }
    } else {
      float* const part =
          call.partials + (static_cast<std::int64_t>(item.slot()) * split_rows + row) * (D + 2);
      ROSE_UNROLL()
      for (int j = 0; j < N; ++j) {
        *reinterpret_cast<float2*>(part + first + j * 8 + 2 * quad) =
            make_float2(open[j][2 * h], open[j][2 * h + 1]);
      }
      if (is_first && quad == 0) {
        *reinterpret_cast<float2*>(part + D) = make_float2(max[h], totals[h]);
      }
    }
  }
}

#endif  // __CUDACC__

}  // namespace rose::kernels::gpu
