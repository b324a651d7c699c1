// Let a team of threads add up a row.

#pragma once

#include "rose/kernels/gpu/group.cuh"
#include "rose/kernels/rows.h"

namespace rose::kernels::gpu {

static_assert(group_size == numerics::row_group);

/// Threads of a row, how many groups each of them holds, and how many threads a block has at least.
template <int kThreads, int kGroups, int kBlock = 128>
struct Team {
  static constexpr int threads = kThreads, groups = kGroups;
  static constexpr int block = kThreads < kBlock ? kBlock : kThreads;
  static constexpr int rows = block / kThreads;  ///< teams of a block
  static constexpr int slots = numerics::row_slots / kThreads;
  static constexpr int used = kGroups < slots ? kGroups : slots;
  static constexpr std::int64_t columns = std::int64_t{kThreads} * kGroups * group_size;
};

/// The longest row that a team holds in registers.
inline constexpr std::int64_t longest_held_row = 32'768;

// Fold a thread's slots, then warps, then lanes.
struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Combines one value of each thread of a team; every thread gets the result. `shared` holds a value per thread of
/// the block and may not be the memory of the fold before.
template <int kThreads, class Op>
__device__ __forceinline__ float fold_threads(float value, float* shared, Op op) {
  constexpr int warp = 32;
  if constexpr (kThreads > warp) {
    constexpr int warps = kThreads / warp;
    const int team = static_cast<int>(threadIdx.x) / kThreads * kThreads;
    shared[threadIdx.x] = value;
    __syncthreads();
    float of[warps];
    ROSE_UNROLL()
    for (int i = 0; i < warps; ++i) of[i] = shared[team + i * warp + threadIdx.x % warp];
    ROSE_UNROLL()
    for (int half = warps / 2; half > 0; half /= 2) {
      ROSE_UNROLL()
      for (int i = 0; i < half; ++i) of[i] = op(of[i], of[i + half]);
    }
    value = of[0];
  }
  ROSE_UNROLL()
  for (int step = (kThreads < warp ? kThreads : warp) / 2; step > 0; step /= 2) {
    value = op(value, __shfl_xor_sync(full_warp, value, step));
  }
  return value;
}

/// The total of a row from the slots of its team's threads; slots from `used` on are zero and not looked at.
template <class Team>
__device__ __forceinline__ float fold_slots(float (&slot)[Team::used], float* shared) {
  ROSE_UNROLL()
  for (int half = Team::slots / 2; half > 0; half /= 2) {
    ROSE_UNROLL()
    for (int i = 0; i < half; ++i) {
      if (i + half < Team::used) slot[i] += slot[i + half];
    }
  }
  return fold_threads<Team::threads>(slot[0], shared, Plus{});
}

// Choose a team by the length of the row.

/// Calls f with a Team for rows of `cols` elements, at most longest_held_row.
template <class F>
void with_team(std::int64_t cols, F&& f) {
  if (cols <= Team<16, 1>::columns) {
    f(Team<16, 1>{});  // a head of 128
  } else if (cols <= Team<32, 4>::columns) {
    f(Team<32, 4>{});  // 1,024
  } else if (cols <= Team<128, 2>::columns) {
    f(Team<128, 2>{});
  } else if (cols <= Team<128, 4>::columns) {
    f(Team<128, 4>{});  // 4,096
  } else if (cols <= Team<256, 4>::columns) {
    f(Team<256, 4>{});
  } else if (cols <= Team<256, 8>::columns) {
    f(Team<256, 8>{});
  } else {
    f(Team<256, 16>{});
  }
}

}  // namespace rose::kernels::gpu
