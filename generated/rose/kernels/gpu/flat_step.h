// Step all parameters of a model in one launch.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "rose/kernels/adamw.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// At most norm_block elements of one parameter, within arrays that hold all parameters one after the other. What lies between
/// two parameters is zero in every array, and stays so: the last eight of a block are stepped together.
struct FlatBlock {
  std::int64_t first = 0;  ///< a multiple of 8
  std::int32_t count = 0;
  std::int32_t group = 0;  ///< which of the steps is taken
};

/// What the parameters' arrays are; each starts at a multiple of 16 bytes.
struct FlatArrays {
  float* weight = nullptr;
  const float* gradient = nullptr;
  float *first = nullptr, *second = nullptr;
  void* copy = nullptr;  ///< bf16 or f16 copy of the weights, rounded to nearest; or null
  DType copy_type = DType::bf16;
};

inline constexpr std::size_t most_groups = 8;

/// kernels::adamw of every block with the step of its group, bit for bit, from gradients times `scale`. `blocks` is in device
/// memory, the steps are the host's.
void flat_adamw(const FlatBlock* blocks, std::int64_t count, const FlatArrays& arrays,
                std::span<const AdamWStep> groups, float scale, Stream stream);

/// result (in device memory) = the sum of the squares of the gradients, by blocks and the tree over them in their order: the bits of
/// square_sums and fold_square_sums when the blocks are those of the parameters.
void flat_square_sum(const FlatBlock* blocks, std::int64_t count, const float* gradient,
                     double* result, Workspace workspace, Stream stream);
std::size_t flat_square_sum_workspace(std::int64_t count);

}  // namespace rose::kernels::gpu
