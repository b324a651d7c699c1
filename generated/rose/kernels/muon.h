// One step of Muon.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/kernels/adamw.h"

namespace rose::kernels {

/// The constants of a step.
struct MuonStep {
  float momentum = 0.95f;
  bool nesterov = true;
  float decay = 0.0f, rate = 0.0f;
  float scale = 1.0f;     ///< of the direction: muon_scale
  float epsilon = 1e-7f;  ///< the smallest length that an update is divided by
  int iterations = 5;
  std::array<float, 3> coefficients{3.4445f, -4.7750f, 2.0315f};
};

enum class MuonScale : std::uint8_t {
  shape,      ///< sqrt(max(1, rows / cols))
  like_adamw  ///< 0.2 sqrt(max(rows, cols))
};
float muon_scale(MuonScale kind, std::int64_t rows, std::int64_t cols);

// Momentum, one polynomial's sum, and the update, element by element.
struct MuonMomentum {
  float momentum, update;
};
ROSE_HOST_DEVICE inline MuonMomentum muon_momentum(float momentum, float gradient,
                                                   const MuonStep& step) {
  const float next = step.momentum * momentum + (1.0f - step.momentum) * gradient;
  const float ahead = (1.0f - step.momentum) * gradient + step.momentum * next;
  return {next, step.nesterov ? ahead : next};
}

/// p x + q y: both sums of the polynomial.
ROSE_HOST_DEVICE inline float muon_sum(float p, float x, float q, float y) {
  return p * x + q * y;
}

ROSE_HOST_DEVICE inline float muon_weight(float weight, float direction, const MuonStep& step) {
  return weight - step.rate * (step.scale * direction + step.decay * weight);
}

/// Memory that a step uses and the next one may use again.
struct MuonScratch {
  std::vector<float> update, gram, square, turned, moved;
  std::vector<double> sums;
};

/// x [rows, cols] becomes the matrix with nearly orthonormal rows (columns, where there are more rows) that points the same way.
void orthogonalize(std::span<float> x, std::int64_t rows, std::int64_t cols, const MuonStep& step,
                   core::ThreadPool& pool, MuonScratch& scratch);

/// Updates a weight [rows, cols] and its momentum in place from gradients times `scale`.
void muon(std::span<float> weight, std::span<const float> gradient, float scale,
          std::span<float> momentum, std::int64_t rows, std::int64_t cols, const MuonStep& step,
          core::ThreadPool& pool, MuonScratch& scratch);

}  // namespace rose::kernels
