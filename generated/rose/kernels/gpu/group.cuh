// Move eight neighbours at a time.

#pragma once

#include <cstdint>
#include <utility>

#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

// `#pragma unroll` as a statement, so that it may stand in a piece of code that is woven into another.
#define ROSE_PRAGMA(text) _Pragma(#text)
#define ROSE_UNROLL(...) ROSE_PRAGMA(unroll __VA_ARGS__)

inline constexpr int group_size = 8;

/// Eight neighbours of a row in registers: one 16-byte access in bf16, two in fp32.
template <class T>
struct alignas(16) Group {
  T at[group_size];
};

// Load what is left of a row, up to eight, and zeros.
template <bool kWide, class T>
__device__ __forceinline__ Group<T> load_group(const T* from, std::int64_t left) {
  Group<T> group;
  if constexpr (kWide) {
    constexpr int words = sizeof(group) / sizeof(uint4);
    auto* to = reinterpret_cast<uint4*>(&group);
    const auto* wide = reinterpret_cast<const uint4*>(from);
    ROSE_UNROLL()
    for (int i = 0; i < words; ++i) to[i] = left > 0 ? wide[i] : make_uint4(0, 0, 0, 0);
  } else {
    ROSE_UNROLL()
    for (int i = 0; i < group_size; ++i) group.at[i] = i < left ? from[i] : from_float<T>(0.0f);
  }
  return group;
}

// Store as many as are left.
template <bool kWide, class T>
__device__ __forceinline__ void store_group(T* to, const Group<T>& group, std::int64_t left) {
  if constexpr (kWide) {
    constexpr int words = sizeof(group) / sizeof(uint4);
    const auto* from = reinterpret_cast<const uint4*>(&group);
    auto* wide = reinterpret_cast<uint4*>(to);
    if (left <= 0) return;
    ROSE_UNROLL()
    for (int i = 0; i < words; ++i) wide[i] = from[i];
  } else {
    ROSE_UNROLL()
    for (int i = 0; i < group_size; ++i) {
      if (i < left) to[i] = group.at[i];
    }
  }
}

// Decide on the host how a launch may access its rows.
inline bool is_wide_pointer(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(uint4) == 0;
}
/// Whether every row of the matrix begins at a multiple of 16 bytes and is a whole number of groups.
inline bool is_wide(const Matrix& m) {
  const auto bytes = static_cast<std::uintptr_t>(m.dtype == DType::f32 ? 4 : 2);
  return is_wide_pointer(m.data) && m.cols % group_size == 0 &&
         (m.rows <= 1 || static_cast<std::uintptr_t>(m.row_stride()) * bytes % 16 == 0);
}
template <class... M>
bool all_wide(const M&... matrices) {
  return (is_wide(matrices) && ...);
}

/// Calls f with a null pointer whose type is the element type: float or __nv_bfloat16; or, of an activation, __half.
template <class F>
void with_element(DType dtype, F&& f) {
  if (dtype == DType::f32) {
    f(static_cast<float*>(nullptr));
  } else {
    f(static_cast<__nv_bfloat16*>(nullptr));
  }
}
template <class F>
void with_activation(DType dtype, F&& f) {
  if (dtype == DType::f16) {
    f(static_cast<__half*>(nullptr));
  } else {
    with_element(dtype, std::forward<F>(f));
  }
}

}  // namespace rose::kernels::gpu
