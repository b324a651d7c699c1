// The activations, in fp32, for every kernel that needs one.

#pragma once

#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

/// 1 / (1 + e^-z); 0 and 1 in the limits, NaN for NaN.
__device__ __forceinline__ float logistic(float z) {
  return __fdividef(1.0f, 1.0f + exp2_approx(-z * log2_e));
}

__device__ __forceinline__ float silu(float z) {
  return z * logistic(z);
}

/// u of the tanh form, doubled.
__device__ __forceinline__ float gelu_argument(float z) {
  constexpr float twice_root = 1.5957691216057308f;  // 2 sqrt(2 / pi)
  return twice_root * z * fmaf(0.044715f, z * z, 1.0f);
}
__device__ __forceinline__ float gelu_tanh(float z) {
  return z * logistic(gelu_argument(z));
}
__device__ __forceinline__ float gelu_exact(float z) {
  return 0.5f * z * (1.0f + erff(z * 0.70710678118654752f));
}

// And their derivatives.
__device__ __forceinline__ float silu_slope(float z) {
  const float s = logistic(z);
  return s * fmaf(z, 1.0f - s, 1.0f);
}
__device__ __forceinline__ float gelu_tanh_slope(float z) {
  constexpr float twice_root = 1.5957691216057308f;
  const float s = logistic(gelu_argument(z));
  return fmaf(z * twice_root * fmaf(0.134145f, z * z, 1.0f), s * (1.0f - s), s);
}
__device__ __forceinline__ float gelu_exact_slope(float z) {
  constexpr float density = 0.39894228040143268f;  // 1 / sqrt(2 pi)
  const float bell = density * exp2_approx(-0.5f * log2_e * z * z);
  return fmaf(z, bell, 0.5f * (1.0f + erff(z * 0.70710678118654752f)));
}

}  // namespace rose::kernels::gpu
