// Look three times.

#include "rose/kernels/softmax.h"

#include <cmath>
#include <limits>

#include "rose/core/error.h"
#include "rose/kernels/elementary.h"
#include "rose/kernels/rows.h"

namespace rose::kernels {

void softmax(std::span<const float> x, std::int64_t rows, std::span<float> y,
             core::ThreadPool& pool) {
  if (rows < 0 || y.size() != x.size() ||
      (rows == 0 ? !x.empty() : x.size() % static_cast<std::size_t>(rows) != 0)) {
    throw core::Error(core::Code::invalid_argument,
                      "x and y must hold the same number of whole rows")
        .in("softmax");
  }
  if (x.empty()) return;
  const std::int64_t cols = static_cast<std::int64_t>(x.size()) / rows;
  pool.for_range(rows, 1 + 4096 / cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = x.data() + r * cols;
      float* out = y.data() + r * cols;
      float highest = -std::numeric_limits<float>::infinity();
      for (std::int64_t i = 0; i < cols; ++i) highest = std::fmax(highest, in[i]);
      for (std::int64_t i = 0; i < cols; ++i) out[i] = exp(in[i] - highest);
      const float sum =
          reference::row_total(cols, [&](float s, std::int64_t i) { return s + out[i]; });
      const float inverse = 1.0f / sum;
      for (std::int64_t i = 0; i < cols; ++i) out[i] *= inverse;
    }
  });
}

// Take the mean under the probabilities away.
void softmax_backward(std::span<const float> y, std::span<const float> dy, std::int64_t rows,
                      std::span<float> dx, core::ThreadPool& pool) {
  if (rows < 0 || dy.size() != y.size() || dx.size() != y.size() ||
      (rows == 0 ? !y.empty() : y.size() % static_cast<std::size_t>(rows) != 0)) {
    throw core::Error(core::Code::invalid_argument,
                      "y, dy and dx must hold the same number of whole rows")
        .in("softmax_backward");
  }
  if (y.empty()) return;
  const std::int64_t cols = static_cast<std::int64_t>(y.size()) / rows;
  pool.for_range(rows, 1 + 4096 / cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float *p = y.data() + r * cols, *g = dy.data() + r * cols;
      float* out = dx.data() + r * cols;
      const float mean = reference::row_total(
          cols, [&](float s, std::int64_t i) { return std::fma(p[i], g[i], s); });
      for (std::int64_t i = 0; i < cols; ++i) out[i] = p[i] * (g[i] - mean);
    }
  });
}

}  // namespace rose::kernels
