// Find rows, load weights.

#pragma once

#include "rose/kernels/gpu/rows.cuh"

namespace rose::kernels::gpu {

/// A matrix whose rows hold `heads` rows of `cols` elements each.
struct HeadRows {
  void* data;
  std::int64_t stride;

  template <class T>
  __device__ T* row(std::int64_t index, unsigned heads, std::int64_t cols) const {
    const auto i = static_cast<unsigned>(index);
    if (heads == 1) return static_cast<T*>(data) + i * stride;
    return static_cast<T*>(data) + std::int64_t{i / heads} * stride + i % heads * cols;
  }
};
inline HeadRows head_rows(const Matrix& m) {
  return {m.data, m.row_stride()};
}

/// A row of parameters of any type that activations have.
struct Parameters {
  const void* data;
  DType dtype;

  /// Elements col to col + 7, zeros beyond what is left.
  template <bool kWide>
  __device__ __forceinline__ void load(std::int64_t col, std::int64_t left,
                                       float (&to)[group_size]) const {
    if (dtype == DType::f32) return load_as<kWide, float>(col, left, to);
    if (dtype == DType::bf16) return load_as<kWide, __nv_bfloat16>(col, left, to);
    load_as<kWide, __half>(col, left, to);
  }

  template <bool kWide, class T>
  __device__ __forceinline__ void load_as(std::int64_t col, std::int64_t left,
                                          float (&to)[group_size]) const {
    const auto group = load_group<kWide>(static_cast<const T*>(data) + col, left);
    ROSE_UNROLL()
    for (int e = 0; e < group_size; ++e) to[e] = to_float(group.at[e]);
  }
};
inline Parameters parameters(const Matrix& m) {
  return {m.data, m.dtype};
}

}  // namespace rose::kernels::gpu
