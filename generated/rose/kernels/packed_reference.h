// Say the packed and the grouped product again, plainly.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rose/kernels/packed.h"
#include "rose/kernels/tensor_core.h"

namespace rose::kernels::reference {

inline float as_bf16(float x) {
  return to_float(to_bf16(x));
}

// Unpack a row, multiply, add the bias, round once.

/// y [M, N] = x [M, K] w^T + bias [N], none if empty. x and the bias hold bf16 numbers, and so does y after.
inline void linear_packed(std::span<const float> x, const PackedMatrix& w,
                          std::span<const float> bias, std::span<float> y) {
  const auto n = static_cast<std::size_t>(w.rows), k = static_cast<std::size_t>(w.cols);
  std::vector<float> row(k);
  for (std::size_t c = 0; c < n; ++c) {
    unpack_row(w, static_cast<std::int64_t>(c), row.data());
    for (std::size_t r = 0; r < y.size() / n; ++r) {
      const float sum = tensor_core_dot(x.subspan(r * k, k), row);
      y[r * n + c] = as_bf16(bias.empty() ? sum : sum + bias[c]);
    }
  }
}

// Give each group of rows its two thin products.

/// The adapter of a group of rows: a [rank, K] and b [N, rank] hold bf16 numbers; empty: these rows have none.
struct AdapterGroup {
  std::size_t rows = 0;
  std::span<const float> a = {}, b = {};
  float scale = 1.0f;
};

/// y [M, N] += scale * (x [M, K] A^T) B^T, group after group, each of the four operations rounded to bf16.
inline void add_adapters(std::span<const float> x, std::size_t k,
                         std::span<const AdapterGroup> groups, std::span<float> y, std::size_t n) {
  std::size_t row = 0;
  for (const AdapterGroup& group : groups) {
    for (const std::size_t end = row + group.rows; row < end; ++row) {
      std::vector<float> thin(group.a.size() / k);
      const std::size_t rank = thin.size();
      for (std::size_t i = 0; i < rank; ++i)
        thin[i] = as_bf16(tensor_core_dot(x.subspan(row * k, k), group.a.subspan(i * k, k)));
      for (std::size_t c = 0; rank > 0 && c < n; ++c) {
        float& to = y[row * n + c];
        const float wide = as_bf16(tensor_core_dot(thin, group.b.subspan(c * rank, rank)));
        to = as_bf16(to + as_bf16(group.scale * wide));
      }
    }
  }
}

}  // namespace rose::kernels::reference
