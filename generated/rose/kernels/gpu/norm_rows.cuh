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

/// A row of parameters in fp32 or bf16.
struct Parameters {
  const void* data;
  bool is_f32;

  /// Elements col to col + 7, zeros beyond what is left.
  template <bool kWide>
  __device__ __forceinline__ void load(std::int64_t col, std::int64_t left,
                                       float (&to)[group_size]) const {
    if (is_f32) {
      const auto group = load_group<kWide>(static_cast<const float*>(data) + col, left);
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) to[e] = group.at[e];
    } else {
      const auto group = load_group<kWide>(static_cast<const __nv_bfloat16*>(data) + col, left);
      ROSE_UNROLL()
      for (int e = 0; e < group_size; ++e) to[e] = to_float(group.at[e]);
    }
  }
};
inline Parameters parameters(const Matrix& m) {
  return {m.data, m.dtype == DType::f32};
}

}  // namespace rose::kernels::gpu
