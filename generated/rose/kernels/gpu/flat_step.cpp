// Check what a flat step is given.

#include "rose/kernels/gpu/flat_step.h"

#include <fmt/format.h>

namespace rose::kernels::gpu {

void launch_flat_adamw(const FlatBlock*, std::int64_t, const FlatArrays&,
                       std::span<const AdamWStep>, float, Stream);
void launch_flat_square_sum(const FlatBlock*, std::int64_t, const float*, double*, Workspace,
                            Stream);

namespace {

void check_blocks(const FlatBlock* blocks, std::int64_t count) {
  constexpr std::int64_t most = 0x7fffffff;
  if (count < 0 || count > most) bad_argument("count", fmt::format("{} blocks", count));
  if (count > 0 && blocks == nullptr) bad_argument("blocks", "no memory");
}

}  // namespace

void flat_adamw(const FlatBlock* blocks, std::int64_t count, const FlatArrays& arrays,
                std::span<const AdamWStep> groups, [[maybe_unused]] float scale,
                [[maybe_unused]] Stream stream) {
  check_blocks(blocks, count);
  if (groups.empty() || groups.size() > most_groups) {
    bad_argument("groups",
                 fmt::format("{} groups, where 1 to {} are possible", groups.size(), most_groups));
  }
  if (arrays.copy != nullptr && arrays.copy_type != DType::bf16 && arrays.copy_type != DType::f16) {
    bad_argument("copy", "bf16 or f16 is needed");
  }
  if (count == 0) return;
  if (arrays.weight == nullptr || arrays.gradient == nullptr || arrays.first == nullptr ||
      arrays.second == nullptr) {
    bad_argument("arrays", "no memory");
  }
  for (const void* array :
       {static_cast<const void*>(arrays.weight), static_cast<const void*>(arrays.gradient),
        static_cast<const void*>(arrays.first), static_cast<const void*>(arrays.second),
        static_cast<const void*>(arrays.copy)}) {
    constexpr std::uintptr_t wide = 16;
    if (reinterpret_cast<std::uintptr_t>(array) % wide != 0)
      bad_argument("arrays", "each must begin at a multiple of 16 bytes");
  }
#ifdef ROSE_HAVE_CUDA
  launch_flat_adamw(blocks, count, arrays, groups, scale, stream);
#else
  no_cuda("flat_adamw");
#endif
}

std::size_t flat_square_sum_workspace(std::int64_t count) {
  return 2 * sizeof(double) * static_cast<std::size_t>(count < 1 ? 1 : count);
}

void flat_square_sum(const FlatBlock* blocks, std::int64_t count, const float* gradient,
                     double* result, Workspace workspace, [[maybe_unused]] Stream stream) {
  check_blocks(blocks, count);
  if (result == nullptr) bad_argument("result", "no memory");
  if (count > 0 && gradient == nullptr) bad_argument("gradient", "no memory");
  check_workspace(workspace, flat_square_sum_workspace(count));
#ifdef ROSE_HAVE_CUDA
  launch_flat_square_sum(blocks, count, gradient, result, workspace, stream);
#else
  no_cuda("flat_square_sum");
#endif
}

}  // namespace rose::kernels::gpu
