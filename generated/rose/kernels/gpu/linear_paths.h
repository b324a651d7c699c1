// The paths behind the linear layer.

#pragma once

#include <vector>

#include "rose/kernels/gpu/linear.h"

/// Internal: used by gpu/linear.cpp and the files linear_*.cu.
namespace rose::kernels::gpu::linear_paths {

/// Whether this device has the path, and the path the shape.
bool small_fits(const LinearShape& shape);

/// Tiles of the small path: columns of a block, blocks of a cluster, whether two blocks share a multiprocessor.
struct SmallVariant {
  int column_tiles = 1;  ///< of eight columns: 1, 2, 4 or 8
  int cluster = 1;       ///< 1, 2 or 4 blocks share the activations
  bool half = false;     ///< half of the shared memory, so that two blocks fit
  friend bool operator==(const SmallVariant&, const SmallVariant&) = default;
};
inline constexpr int small_variants = 24;
SmallVariant small_variant(int index);
int small_index(const SmallVariant& variant);

/// cuBLASLt's proposals that split nothing, best first, at most `most`. `any` lets it split: for comparison only.
std::vector<LinearPlan> library_plans(const LinearShape& shape, int most, bool any = false);
/// Whether the plan's algorithm is of the family whose bits the self-test found canonical in every case.
bool library_trusted(const LinearPlan& plan);
/// The number of pieces that a library plan cuts K into.
int library_splits(const LinearPlan& plan);
int library_version();

/// Whether y of the plan has the bits of the general path, on random inputs.
bool has_canonical_bits(const LinearPlan& plan);

void run_library(const LinearPlan& plan, const LinearArguments& arguments, Workspace workspace,
                 Stream stream);
void run_small(const LinearPlan& plan, const LinearArguments& arguments, Stream stream);

/// The path of chapter 4/23: whether it fits, and its kernel.
bool resident_fits(const LinearShape& shape);
void run_resident(const LinearPlan& plan, const LinearArguments& arguments, Stream stream);
void run_general(const LinearPlan& plan, const LinearArguments& arguments, Workspace workspace,
                 Stream stream);
void run_f32(const LinearPlan& plan, const LinearArguments& arguments, Workspace workspace,
             Stream stream);

/// y = the rest of the graph after `product` [M, weight rows]: activation, scale, residual. With `bias_too`, the bias first.
void finish(const LinearShape& shape, const Matrix& product, const LinearArguments& arguments,
            bool bias_too, Stream stream);

}  // namespace rose::kernels::gpu::linear_paths
