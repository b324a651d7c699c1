// Views: somebody else's memory, with a shape.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "rose/kernels/dtype.h"

namespace rose::kernels {

// A matrix of any element type, row by row.
struct MatrixView {
  const void* data = nullptr;  ///< row-major; rows are contiguous and row_bytes(dtype, cols) apart
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0;    ///< a weight is [out, in]
  const std::byte* panels = nullptr;  ///< the same weights in another layout, or null

  std::size_t stride_bytes() const { return row_bytes(dtype, cols); }
  std::size_t bytes() const { return static_cast<std::size_t>(rows) * stride_bytes(); }
  const std::byte* row(std::int64_t i) const {
    return static_cast<const std::byte*>(data) + static_cast<std::size_t>(i) * stride_bytes();
  }
};

// A tensor: a pointer, sizes, and the steps between neighbours.
template <class T, std::size_t Rank>
struct StridedView {
  T* data = nullptr;
  std::array<std::int64_t, Rank> shape{};
  std::array<std::int64_t, Rank> stride{};  ///< in elements

  static StridedView contiguous(T* data, std::array<std::int64_t, Rank> shape) {
    StridedView view{data, shape, {}};
    std::int64_t step = 1;
    for (std::size_t axis = Rank; axis-- > 0;) {
      view.stride[axis] = step;
      step *= shape[axis];
    }
    return view;
  }

  template <class... Index>
    requires(sizeof...(Index) == Rank)
  T& operator()(Index... index) const {
    const std::array<std::int64_t, Rank> at{static_cast<std::int64_t>(index)...};
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < Rank; ++axis) offset += at[axis] * stride[axis];
    return data[offset];
  }

  // Change what the indices mean, and leave the numbers where they are.
  StridedView transposed(std::size_t a, std::size_t b) const {
    StridedView view = *this;
    std::swap(view.shape[a], view.shape[b]);
    std::swap(view.stride[a], view.stride[b]);
    return view;
  }

  /// Indices [begin, end) of one axis.
  StridedView sliced(std::size_t axis, std::int64_t begin, std::int64_t end) const {
    StridedView view = *this;
    view.data += begin * stride[axis];
    view.shape[axis] = end - begin;
    return view;
  }

  std::int64_t size() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }

  /// Whether the elements lie without gaps in the order of the indices.
  bool is_contiguous() const {
    std::int64_t step = 1;
    for (std::size_t axis = Rank; axis-- > 0;) {
      if (shape[axis] != 1 && stride[axis] != step) return false;
      step *= shape[axis];
    }
    return true;
  }
};

}  // namespace rose::kernels
