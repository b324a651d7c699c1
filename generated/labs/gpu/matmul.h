// Name the rungs, say what each does, and what it moves.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "labs/gpu/rung.h"

namespace rose::labs {

/// c [m, n] = a [m, k] b [k, n], all fp32, row by row, in device memory aligned to 16 bytes.
using Matmul = void(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                    std::int64_t k, gpu::Stream stream);

/// From naive to fast; each output is one chain of fma in ascending k, whatever the rung. Those from "vector" on need n and k that are
/// multiples of four and throw core::Error (invalid_argument) for others.
Rungs<Matmul> matmul_ladder();
/// The last rung with other tiles, to choose from by measurement.
Rungs<Matmul> matmul_tiles();

/// Throws core::Error (invalid_argument) naming the size that is negative, too large for a lab, or no multiple of `unit`.
void check_matmul(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t unit);

// Split the sum.

/// As the last rung, k in `pieces` equal pieces, whose sums are added in ascending order. k is a multiple of 4 * pieces; the workspace
/// has pieces * m * n floats. Throws core::Error (invalid_argument).
void matmul_split(const float* a, const float* b, float* c, std::int64_t m, std::int64_t n,
                  std::int64_t k, std::int64_t pieces, gpu::Workspace workspace,
                  gpu::Stream stream);

// Ask the library.

/// What cuBLASLt proposes for a product, its own favourite first. Throws core::Error (unsupported) in a build without CUDA.
class MatmulLibrary {
 public:
  MatmulLibrary(std::int64_t m, std::int64_t n, std::int64_t k, int most);
  int proposals() const;
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
  void launch(int proposal, const float* a, const float* b, float* c, gpu::Workspace workspace,
              gpu::Stream stream) const;
  static int version();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Multiply in the plainest way.

/// One chain of fma in ascending k for each output: the twin of every rung.
inline void matmul_chain(std::span<const float> a, std::span<const float> b, std::span<float> c,
                         std::size_t n, std::size_t k) {
  for (std::size_t i = 0; i < c.size(); ++i) {
    const std::size_t row = i / n, column = i % n;
    float sum = 0.0f;
    for (std::size_t t = 0; t < k; ++t) sum = std::fma(a[row * k + t], b[t * n + column], sum);
    c[i] = sum;
  }
}

// Count what tiles make the memories move.

/// Bytes that blocks with such tiles ask the L2 for, and write.
inline double matmul_bytes(double m, double n, double k, double tile_m, double tile_n) {
  return 4 * m * n * k * (1 / tile_m + 1 / tile_n) + 4 * m * n;
}
/// Multiply-adds for each word that a thread with such a tile reads from shared memory.
inline double fma_per_word(double thread_m, double thread_n) {
  return thread_m * thread_n / (thread_m + thread_n);
}

}  // namespace rose::labs
