// Scan a tile of 4,096 numbers in registers.

#pragma once

#include "labs/gpu/scan.h"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/group.cuh"

/// What the rungs of scan and compaction share: a tile of numbers in the registers of a block.
namespace rose::labs::scan_tile {

using kernels::gpu::full_warp;

inline constexpr int kThreads = 256, kRows = 4, kGroup = 4;
inline constexpr int kTile = kThreads * kRows * kGroup;

template <int kRows>
using Tile = std::uint32_t[kRows][kGroup];

/// Where the group of a row lies within its tile.
template <int kRows>
__device__ int place(int row) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  return ((warp * kRows + row) * 32 + lane) * kGroup;
}

/// Zero beyond the end.
template <int kRows>
__device__ void load_tile(const std::uint32_t* in, std::int64_t left, Tile<kRows>& x) {
  ROSE_UNROLL()
  for (int row = 0; row < kRows; ++row) {
    if (left >= std::int64_t{blockDim.x} * kRows * kGroup) {
      const uint4 group = __ldcs(reinterpret_cast<const uint4*>(in + place<kRows>(row)));
      x[row][0] = group.x, x[row][1] = group.y, x[row][2] = group.z, x[row][3] = group.w;
    } else {
      ROSE_UNROLL()
      for (int e = 0; e < kGroup; ++e)
        x[row][e] = place<kRows>(row) + e < left ? in[place<kRows>(row) + e] : 0;
    }
  }
}

// Store what lies before the end.
template <int kRows>
__device__ void store_tile(const Tile<kRows>& x, std::int64_t left, std::uint32_t* out) {
  ROSE_UNROLL()
  for (int row = 0; row < kRows; ++row) {
    if (left >= std::int64_t{blockDim.x} * kRows * kGroup) {
      __stcs(reinterpret_cast<uint4*>(out + place<kRows>(row)),
             make_uint4(x[row][0], x[row][1], x[row][2], x[row][3]));
    } else {
      ROSE_UNROLL()
      for (int e = 0; e < kGroup; ++e)
        if (place<kRows>(row) + e < left) out[place<kRows>(row) + e] = x[row][e];
    }
  }
}

// Scan rows in warps, and warps in the block.

/// The sum of this lane's value and those of the lanes before.
__device__ inline std::uint32_t warp_prefix(std::uint32_t value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  ROSE_UNROLL()
  for (int d = 1; d < 32; d *= 2) {
    const std::uint32_t before = __shfl_up_sync(full_warp, value, d);
    if (lane >= d) value += before;
  }
  return value;
}

/// Turns a tile into its exclusive scan; returns its total, in every thread. Ends with a barrier.
template <int kThreads, int kRows>
__device__ std::uint32_t scan(Tile<kRows>& x) {
  constexpr int kWarps = kThreads / 32;
  __shared__ std::uint32_t of_warp[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::uint32_t carry = 0;
  ROSE_UNROLL()
  for (int row = 0; row < kRows; ++row) {
    const std::uint32_t mine = (x[row][0] + x[row][1]) + (x[row][2] + x[row][3]);
    const std::uint32_t upto = warp_prefix(mine);
    std::uint32_t sum = carry + upto - mine;
    carry += __shfl_sync(full_warp, upto, 31);
    ROSE_UNROLL()
    for (int e = 0; e < kGroup; ++e) {
      const std::uint32_t value = x[row][e];
      x[row][e] = sum;
      sum += value;
    }
  }
  if (lane == 0) of_warp[warp] = carry;
  __syncthreads();
  std::uint32_t before = 0, total = 0;
  ROSE_UNROLL()
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += of_warp[w];
    total += of_warp[w];
  }
  ROSE_UNROLL()
  for (int row = 0; row < kRows; ++row) {
    ROSE_UNROLL()
    for (int e = 0; e < kGroup; ++e) x[row][e] += before;
  }
  __syncthreads();
  return total;
}

// Ask the tiles before.

/// What a tile has published: nothing yet (all zero), its own sum, or the sum up to its end.
enum class Known : std::uint32_t { nothing, own, all };

__device__ inline std::uint64_t state_of(Known known, std::uint32_t sum) {
  return std::uint64_t{static_cast<std::uint32_t>(known)} << 32 | sum;
}
__device__ inline Known known(std::uint64_t state) {
  return static_cast<Known>(state >> 32);
}
__device__ inline void publish(std::uint64_t* state, std::uint64_t value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(state), "l"(value) : "memory");
}
__device__ inline std::uint64_t look(const std::uint64_t* state) {
  std::uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(state) : "memory");
  return value;
}

/// The sum of all tiles before this one, in every lane of the warp that asks.
__device__ inline std::uint32_t sum_before(const std::uint64_t* states, std::int64_t tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t sum = 0;
  for (std::int64_t nearest = tile - 1;; nearest -= 32) {
    const std::int64_t asked = nearest - lane;
    std::uint64_t state = state_of(Known::all, 0);  // before the first tile there is nothing
    do {
      if (asked >= 0) state = look(states + asked);
    } while (__any_sync(full_warp, known(state) == Known::nothing));
    const unsigned all = __ballot_sync(full_warp, known(state) == Known::all);
    const int last = all == 0 ? 31 : __ffs(static_cast<int>(all)) - 1;
    sum += __reduce_add_sync(full_warp, lane <= last ? static_cast<std::uint32_t>(state) : 0);
    if (all != 0) return sum;
  }
}

// Take a tile, and learn what came before.

/// In device memory: a counter of tiles taken, then a state per tile; all zero at first.
struct LookBack {
  unsigned* taken;
  std::uint64_t* states;
};

__device__ inline std::int64_t take_tile(const LookBack& memory) {
  __shared__ unsigned tile;
  if (threadIdx.x == 0) tile = atomicAdd(memory.taken, 1u);
  __syncthreads();
  return tile;
}

/// Publishes the tile's sum, returns that of the tiles before it, in every thread.
__device__ inline std::uint32_t exchange(const LookBack& memory, std::int64_t tile,
                                         std::uint32_t total) {
  __shared__ std::uint32_t before;
  if (threadIdx.x < 32) {
    std::uint64_t* const mine = memory.states + tile;
    if (threadIdx.x == 0) publish(mine, state_of(tile == 0 ? Known::all : Known::own, total));
    const std::uint32_t sum = tile == 0 ? 0 : sum_before(memory.states, tile);
    if (threadIdx.x == 0) {
      before = sum;
      if (tile != 0) publish(mine, state_of(Known::all, sum + total));
    }
  }
  __syncthreads();
  return before;
}

/// Clears it for `tiles` tiles.
inline LookBack look_back_memory(void* memory, std::int64_t tiles, gpu::Stream stream) {
  const auto bytes = static_cast<std::size_t>(tiles + 32) * sizeof(std::uint64_t);
  ROSE_CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, kernels::gpu::to_cuda(stream)));
  return {static_cast<unsigned*>(memory), static_cast<std::uint64_t*>(memory) + 32};
}

}  // namespace rose::labs::scan_tile
