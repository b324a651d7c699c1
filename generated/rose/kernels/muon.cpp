// Orthogonalise by products.

#include "rose/kernels/muon.h"

#include <algorithm>
#include <cmath>

#include "rose/core/error.h"
#include "rose/kernels/linear.h"

namespace rose::kernels {
namespace {

std::size_t area(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

/// to [cols, rows] = the transpose of from [rows, cols].
void transpose(std::span<const float> from, std::int64_t rows, std::int64_t cols,
               std::vector<float>& to, core::ThreadPool& pool) {
  to.resize(from.size());
  pool.for_range(cols, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      for (std::int64_t r = 0; r < rows; ++r)
        to[area(c, rows) + area(1, r)] = from[area(r, cols) + area(1, c)];
    }
  });
}

/// y[i, j] = x_i . w_j for rows of k numbers.
void product(std::span<const float> x, std::int64_t m, std::span<const float> w, std::int64_t n,
             std::int64_t k, std::vector<float>& y, core::ThreadPool& pool) {
  y.resize(area(m, n));
  const MatrixView view{.data = w.data(), .dtype = DType::f32, .rows = n, .cols = k};
  linear(x, m, view, nullptr, y, pool);
}

// Apply the polynomial some times to a wide matrix.

/// x [m, n], m <= n, all singular values at most 1.
void newton_schulz(std::span<float> x, std::int64_t m, std::int64_t n, const MuonStep& step,
                   core::ThreadPool& pool, MuonScratch& scratch) {
  const auto [a, b, c] = step.coefficients;
  for (int i = 0; i < step.iterations; ++i) {
    product(x, m, x, m, n, scratch.gram, pool);
    product(scratch.gram, m, scratch.gram, m, m, scratch.square, pool);
    for (std::size_t e = 0; e < scratch.square.size(); ++e)
      scratch.square[e] = muon_sum(b, scratch.gram[e], c, scratch.square[e]);
    transpose(x, m, n, scratch.turned, pool);
    product(scratch.square, m, scratch.turned, n, m, scratch.moved, pool);
    for (std::size_t e = 0; e < x.size(); ++e) x[e] = muon_sum(a, x[e], 1.0f, scratch.moved[e]);
  }
}

}  // namespace

// Divide by the length, turn what is tall, update.
float muon_scale(MuonScale kind, std::int64_t rows, std::int64_t cols) {
  constexpr double like_adamw = 0.2;
  const auto r = static_cast<double>(rows), c = static_cast<double>(cols);
  if (kind == MuonScale::like_adamw)
    return static_cast<float>(like_adamw * std::sqrt(std::max(r, c)));
  return static_cast<float>(std::sqrt(std::max(1.0, r / c)));
}

void orthogonalize(std::span<float> x, std::int64_t rows, std::int64_t cols, const MuonStep& step,
                   core::ThreadPool& pool, MuonScratch& scratch) {
  scratch.sums.resize((x.size() + norm_block - 1) / norm_block);
  square_sums(x, scratch.sums, pool);
  const auto norm = static_cast<float>(std::sqrt(fold_square_sums(scratch.sums)));
  const float length = std::max(norm, step.epsilon);
  for (float& value : x) value /= length;
  if (rows <= cols) return newton_schulz(x, rows, cols, step, pool, scratch);
  std::vector<float> wide, tall;
  transpose(x, rows, cols, wide, pool);
  newton_schulz(wide, cols, rows, step, pool, scratch);
  transpose(wide, cols, rows, tall, pool);
  std::copy(tall.begin(), tall.end(), x.begin());
}

void muon(std::span<float> weight, std::span<const float> gradient, float scale,
          std::span<float> momentum, std::int64_t rows, std::int64_t cols, const MuonStep& step,
          core::ThreadPool& pool, MuonScratch& scratch) {
  if (rows < 0 || cols < 0 || weight.size() != area(rows, cols) ||
      gradient.size() != weight.size() || momentum.size() != weight.size()) {
    throw core::Error(core::Code::invalid_argument,
                      "weights, gradients and momentum must have rows times cols elements")
        .in("muon");
  }
  scratch.update.resize(weight.size());
  for (std::size_t i = 0; i < weight.size(); ++i) {
    const MuonMomentum next = muon_momentum(momentum[i], gradient[i] * scale, step);
    momentum[i] = next.momentum, scratch.update[i] = next.update;
  }
  orthogonalize(scratch.update, rows, cols, step, pool, scratch);
  for (std::size_t i = 0; i < weight.size(); ++i)
    weight[i] = muon_weight(weight[i], scratch.update[i], step);
}

}  // namespace rose::kernels
