// What the norm kernels are launched with.

#pragma once

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

struct NormArguments {
  Matrix x = {}, residual = {}, sum = {}, y = {}, weight = {},
         bias = {};  ///< residual, sum and bias without memory where there is none
  float eps = 0.0f;
  float *mean = nullptr, *inv = nullptr;
  std::int64_t heads = 1;  ///< norms in a row of x
  bool centre = false;
};
void launch_norm(const NormArguments& arguments, Stream stream);

struct NormBackwardArguments {
  Matrix x = {}, weight = {}, dy = {}, add = {}, dx = {};
  const float *mean = nullptr, *inv = nullptr;  ///< no mean: RMSNorm
  float *dweight = nullptr, *dbias = nullptr;
  std::int64_t heads = 1;
  float* partial = nullptr;  ///< a sum of dweight, and one of dbias, for every run of rows
};
void launch_norm_backward(const NormBackwardArguments& arguments, Stream stream);

/// The rows of a backward pass are cut into at most so many runs of equal length; each sums its own dweight. As many blocks fill
/// an H200 in one wave, two on each multiprocessor, or three where rows are heads and a block needs little.
constexpr std::int64_t most_norm_runs(std::int64_t cols) {
  return cols <= 128 ? 384 : 256;
}
/// Rows beyond this may need memory for two numbers each.
inline constexpr std::int64_t shortest_long_row = 8192;
constexpr std::int64_t rows_of_norm_run(std::int64_t rows, std::int64_t runs) {
  return (rows + runs - 1) / runs;
}
constexpr std::int64_t runs_of_norm(std::int64_t rows, std::int64_t runs) {
  const std::int64_t length = rows_of_norm_run(rows, runs);
  return length == 0 ? 0 : (rows + length - 1) / length;
}

}  // namespace rose::kernels::gpu
