// One angle, one rotation, for every kernel that turns.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

struct Turn {
  float cos, sin;
};

/// cos and sin of position * inv_freq, the product rounded to fp32; times `scale`. What kernels::rope_table computes.
__device__ __forceinline__ Turn rope_turn(std::int32_t position, float inv_freq, float scale) {
  const float angle = static_cast<float>(position) * inv_freq;
  double s, c;
  sincos(static_cast<double>(angle), &s, &c);
  return {static_cast<float>(c) * scale, static_cast<float>(s) * scale};
}

/// The pair (a, b), turned; in fp32, to be rounded once.
__device__ __forceinline__ float2 rope_pair(float a, float b, Turn turn) {
  return make_float2(a * turn.cos - b * turn.sin, b * turn.cos + a * turn.sin);
}

}  // namespace rose::kernels::gpu
