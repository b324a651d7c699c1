// Update parameters and measure gradients, on a GPU.

#pragma once

#include <cstddef>
#include <span>

#include "rose/kernels/adamw.h"
#include "rose/kernels/cast.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// One parameter and what belongs to it; every array is contiguous and has as many elements as the weight.
struct AdamWParameter {
  Matrix weight;    ///< f32, or bf16
  Matrix gradient;  ///< f32, bf16 or f16
  float *first = nullptr, *second = nullptr;
  Matrix copy = {};  ///< bf16 or f16 copy of an f32 weight, rounded to nearest; none without memory
  bool by_chance = false;  ///< round a bf16 weight by chance, under `key`; else to nearest
  RoundingKey key = {};
};

/// kernels::adamw, bit for bit. `scale` is in device memory, what the gradient is multiplied with; null means 1.
void adamw(const AdamWParameter& parameter, const AdamWStep& step, const float* scale,
           Stream stream);

/// Throws core::Error naming what does not fit a step of a weight [rows, cols].
void check_step(const AdamWParameter& parameter, std::int64_t rows, std::int64_t cols);

/// Bytes for gradient_norm over so many gradients' elements (host array).
std::size_t gradient_norm_workspace(std::span<const Matrix> gradients);

/// result[0] = the Euclidean norm of all gradients (contiguous, f32, bf16 or f16) in the order of square_sums and fold_square_sums;
/// result[1] = limit / norm where that is below 1, else 1. `result` is in device memory; the array of gradients is on the host.
void gradient_norm(std::span<const Matrix> gradients, float limit, float* result,
                   Workspace workspace, Stream stream);

}  // namespace rose::kernels::gpu
