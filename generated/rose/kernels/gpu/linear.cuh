// Bias, activation, scale and residual, with the roundings of the unfused graph.

#pragma once

#include "rose/kernels/gpu/activation.cuh"
#include "rose/kernels/gpu/cuda.cuh"
#include "rose/kernels/gpu/linear_paths.h"

namespace rose::kernels::gpu::linear_paths {

struct Epilogue {
  const void* bias;
  const void* residual;
  std::int64_t residual_stride;
  float scale;
  Activation activation;
  bool scaled;
};

inline Epilogue epilogue_of(const LinearShape& shape, const LinearArguments& a,
                            bool bias_too = true) {
  return {.bias = shape.bias && bias_too ? a.bias : nullptr,
          .residual = shape.residual ? a.residual.data : nullptr,
          .residual_stride = a.residual.row_stride(),
          .scale = a.scale,
          .activation = shape.activation,
          .scaled = shape.scaled};
}

/// Not inlined: a thread completes up to 64 sums, and the error function is long.
template <class Out>
__device__ __noinline__ float activate(Activation activation, float v) {
  if (activation == Activation::gelu_tanh) return round_to<Out>(gelu_tanh(v));
  if (activation == Activation::gelu_exact) return round_to<Out>(gelu_exact(v));
  return round_to<Out>(silu(v));
}

/// The product and its bias, rounded once.
template <class In, class Out>
__device__ __forceinline__ float with_bias(const Epilogue& e, float sum, std::int64_t column) {
  if (e.bias != nullptr) sum += to_float(static_cast<const In*>(e.bias)[column]);
  return round_to<Out>(sum);
}

/// After the activation.
template <class Out>
__device__ __forceinline__ float scale_and_add(const Epilogue& e, float v, std::int64_t row,
                                               std::int64_t column) {
  if (e.scaled) v = round_to<Out>(v * e.scale);
  if (e.residual != nullptr) {
    v = round_to<Out>(
        v + to_float(static_cast<const Out*>(e.residual)[row * e.residual_stride + column]));
  }
  return v;
}

template <class In, class Out>
__device__ __forceinline__ float complete(const Epilogue& e, float sum, std::int64_t row,
                                          std::int64_t column) {
  float v = with_bias<In, Out>(e, sum, column);
  if (e.activation != Activation::none) v = activate<Out>(e.activation, v);
  return scale_and_add<Out>(e, v, row, column);
}

/// SwiGLU of one gate and one up sum: four roundings, as its graph has four operations.
template <class In, class Out>
__device__ __forceinline__ float complete_swiglu(const Epilogue& e, float gate, float up,
                                                 std::int64_t row, std::int64_t column,
                                                 std::int64_t columns) {
  const float g = with_bias<In, Out>(e, gate, column);
  const float u = with_bias<In, Out>(e, up, columns + column);
  return scale_and_add<Out>(e, round_to<Out>(round_to<Out>(silu(g)) * u), row, column);
}

}  // namespace rose::kernels::gpu::linear_paths
