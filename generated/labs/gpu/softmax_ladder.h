// Name the rungs, and say what each does.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "labs/gpu/rung.h"

namespace rose::labs {

/// y = softmax of every row of x; both contiguous, bf16, of the same shape, at multiples of 16 bytes.
using SoftmaxRows = void(const gpu::Matrix& x, const gpu::Matrix& y, gpu::Stream stream);

Rungs<SoftmaxRows> softmax_ladder();

/// The longest row that the rung "registers" holds, and that "cluster" holds.
inline constexpr std::int64_t softmax_held = 8192, softmax_clustered = 131'072;

/// Throws core::Error (invalid_argument) naming x or y: another type or shape, columns that are no multiple of eight or more than `most`.
void check_softmax(const gpu::Matrix& x, const gpu::Matrix& y, std::int64_t most);

// Merge two pieces of a row.

/// The largest of some numbers, and the sum of exp(x - largest).
struct OnlineSum {
  float highest, sum;  // -infinity and 0 for none
};

/// `shrink(a, b)` is exp(a - b) for a <= b, exactly 1 for equal ones.
template <class Shrink>
OnlineSum merge(const OnlineSum& a, const OnlineSum& b, const Shrink& shrink) {
  // The comparison lets a NaN through from either side.
  const float highest = a.highest > b.highest || a.highest != a.highest ? a.highest : b.highest;
  return {highest, a.sum * shrink(a.highest, highest) + b.sum * shrink(b.highest, highest)};
}

}  // namespace rose::labs
