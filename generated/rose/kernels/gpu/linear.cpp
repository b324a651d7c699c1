// Check the arguments and choose a path.

#include "rose/kernels/gpu/linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"
#include "rose/kernels/gpu/linear_paths.h"

namespace rose::kernels::gpu {

namespace {

constexpr std::uintptr_t wide = 16;  // bytes of the widest access

bool starts_aligned(const Matrix& matrix) {
  const auto step = matrix.row_stride() * info(matrix.dtype).block_bytes;
  return reinterpret_cast<std::uintptr_t>(matrix.data) % wide == 0 &&
         (matrix.rows <= 1 || step % static_cast<std::int64_t>(wide) == 0);
}

void check_arguments(const LinearPlan& plan, const LinearArguments& a, Workspace workspace) {
  const LinearShape& shape = plan.shape;
  check_matrix(a.x, "x", shape.m, shape.k, shape.in);
  check_matrix(a.w, "w", shape.weight_rows(), shape.k, shape.in);
  check_matrix(a.y, "y", shape.m, shape.n, shape.out);
  if (shape.residual) check_matrix(a.residual, "residual", shape.m, shape.n, shape.out);
  if (shape.bias && shape.n > 0 && a.bias == nullptr) bad_argument("bias", "no memory");
  if (!shape.scaled && a.scale != 1) bad_argument("scale", "the plan has none");
  if (shape.aligned && shape.k > 0) {
    if (shape.m > 0 && !starts_aligned(a.x)) {
      bad_argument("x", "rows do not begin at multiples of 16 bytes, as the plan says");
    }
    if (!starts_aligned(a.w)) {
      bad_argument("w", "rows do not begin at multiples of 16 bytes, as the plan says");
    }
  }
  check_workspace(workspace, plan.workspace_bytes);
}

}  // namespace

void check_linear(const LinearShape& shape) {
  if (shape.m < 0) bad_argument("shape.m", fmt::format("{} rows", shape.m));
  if (shape.n < 0) bad_argument("shape.n", fmt::format("{} columns", shape.n));
  if (shape.k < 0) bad_argument("shape.k", fmt::format("{} terms", shape.k));
  constexpr std::int64_t most = std::int64_t{1} << 31;  // sizes are 32-bit integers in device code
  if (std::max({shape.m, 2 * shape.n, shape.k}) >= most)
    bad_argument("shape", "a size of 2^31 or more");
  const bool half = shape.in == DType::bf16 || shape.in == DType::f16;
  if (!half && shape.in != DType::f32) {
    throw core::Error(core::Code::unsupported,
                      fmt::format("a linear layer of {}", info(shape.in).name))
        .in("shape.in")
        .hint("bf16, f16 and f32 have kernels");
  }
  if (shape.out != shape.in && shape.out != DType::f32) {
    throw core::Error(core::Code::unsupported,
                      fmt::format("a linear layer of {} with results in {}", info(shape.in).name,
                                  info(shape.out).name))
        .in("shape.out")
        .hint("results have the type of the inputs, or f32");
  }
}

std::string LinearPlan::describe() const {
  switch (path) {
    case LinearPath::none: return "nothing to do";
    case LinearPath::library: return fmt::format("cuBLASLt, algorithm {:x}", algorithm[0]);
    case LinearPath::small: {
      const auto tiles = linear_paths::small_variant(variant);
      return fmt::format("small, {} columns, cluster of {}{}", 8 * tiles.column_tiles,
                         tiles.cluster, tiles.half ? ", two blocks" : "");
    }
    case LinearPath::general: return "general";
    case LinearPath::f32: return "fp32";
    case LinearPath::resident: return "few rows, all of the weight in flight";
  }
  return "";
}

// Run a plan.
namespace linear_paths {

SmallVariant small_variant(int index) {
  constexpr int cluster_sizes = 3, widths = 4;
  return {.column_tiles = 1 << (index / cluster_sizes % widths),
          .cluster = 1 << (index % cluster_sizes),
          .half = index >= small_variants / 2};
}

int small_index(const SmallVariant& variant) {
  for (int i = 0; i < small_variants; ++i) {
    if (small_variant(i) == variant) return i;
  }
  return 0;
}

}  // namespace linear_paths

void linear(const LinearPlan& plan, const LinearArguments& arguments, Workspace workspace,
            Stream stream) {
  check_linear(plan.shape);
  check_arguments(plan, arguments, workspace);
  if (plan.path == LinearPath::none) return;
#ifdef ROSE_HAVE_CUDA
  switch (plan.path) {
    case LinearPath::none: return;
    case LinearPath::library: return linear_paths::run_library(plan, arguments, workspace, stream);
    case LinearPath::small: return linear_paths::run_small(plan, arguments, stream);
    case LinearPath::resident: return linear_paths::run_resident(plan, arguments, stream);
    case LinearPath::general: return linear_paths::run_general(plan, arguments, workspace, stream);
    case LinearPath::f32: return linear_paths::run_f32(plan, arguments, workspace, stream);
  }
#else
  static_cast<void>(stream);
  no_cuda("linear");
#endif
}

// Plan by rules.
namespace {

/// A plan for a path that is ours; swiglu and the general paths meet in the workspace.
LinearPlan plan_of(const LinearShape& shape, LinearPath path, int variant = 0) {
  LinearPlan plan{.shape = shape, .path = path, .variant = variant};
  const bool fused = path == LinearPath::small || path == LinearPath::resident;
  if (!fused && shape.activation == Activation::swiglu) {
    plan.workspace_bytes = static_cast<std::size_t>(shape.m * 2 * shape.n) *
                           static_cast<std::size_t>(info(shape.out).block_bytes);
  }
  return plan;
}

[[maybe_unused]] constexpr int most_proposals = 8;

bool empty(const LinearShape& shape) {
  return shape.m == 0 || shape.n == 0;
}

/// Whether the library may be asked: rows that it can read by 16 bytes.
[[maybe_unused]] bool library_fits(const LinearShape& shape) {
  constexpr std::int64_t unit = 8;  // elements
  return shape.aligned && shape.k % unit == 0 && shape.k > 0;
}

}  // namespace

#ifdef ROSE_HAVE_CUDA
namespace {

constexpr std::int64_t few_rows = 256;  // two tiles of rows
constexpr std::int64_t resident_rows = 4;

/// Left alone, the library splits K where its tiles are too wide to occupy the machine: there ours are better.
bool library_would_split(const LinearShape& shape) {
  const std::vector<LinearPlan> own = linear_paths::library_plans(shape, 1, true);
  return own.empty() || linear_paths::library_splits(own.front()) > 1;
}

/// As many columns as leave a block for each multiprocessor, or nearly.
int small_rule(const LinearShape& shape) {
  constexpr std::int64_t blocks = 132, eight = 8;
  linear_paths::SmallVariant tiles{
      .column_tiles = 1, .cluster = shape.m <= 16 ? 1 : 2, .half = false};
  while (tiles.column_tiles < 8 && shape.n > blocks * eight * tiles.column_tiles)
    tiles.column_tiles *= 2;
  return linear_paths::small_index(tiles);
}

}  // namespace
#endif

LinearPlan plan_linear(const LinearShape& shape, [[maybe_unused]] bool laws) {
  check_linear(shape);
  if (empty(shape)) return {.shape = shape};
  if (shape.in == DType::f32) return plan_of(shape, LinearPath::f32);
#ifdef ROSE_HAVE_CUDA
  if (!laws && library_fits(shape) && library_would_split(shape)) {
    const std::vector<LinearPlan> own = linear_paths::library_plans(shape, 1, true);
    if (!own.empty()) return own.front();
  }
  if (linear_paths::small_fits(shape) && shape.m <= few_rows && library_would_split(shape)) {
    if (shape.m <= resident_rows && linear_paths::resident_fits(shape)) {
      return plan_of(shape, LinearPath::resident);
    }
    return plan_of(shape, LinearPath::small, small_rule(shape));
  }
  if (library_fits(shape)) {
    for (const LinearPlan& plan : linear_paths::library_plans(shape, most_proposals)) {
      if (linear_paths::library_trusted(plan)) return plan;
    }
  }
#endif
  return plan_of(shape, LinearPath::general);
}

std::vector<LinearPlan> linear_candidates(const LinearShape& shape, bool verified) {
  check_linear(shape);
  if (empty(shape)) return {{.shape = shape}};
  const bool full = shape.in == DType::f32;
  std::vector<LinearPlan> plans;
#ifdef ROSE_HAVE_CUDA
  if (library_fits(shape)) plans = linear_paths::library_plans(shape, most_proposals);
  if (!verified) {
    std::erase_if(plans, [&](const LinearPlan& plan) {
      return full || !linear_paths::library_trusted(plan);
    });
  }
  if (linear_paths::resident_fits(shape)) plans.push_back(plan_of(shape, LinearPath::resident));
  if (linear_paths::small_fits(shape) && shape.m <= few_rows) {
    for (int i = 0; i < linear_paths::small_variants; ++i) {
      plans.push_back(plan_of(shape, LinearPath::small, i));
    }
  }
  if (verified) {
    std::erase_if(plans,
                  [](const LinearPlan& plan) { return !linear_paths::has_canonical_bits(plan); });
  }
#else
  static_cast<void>(verified);
#endif
  plans.push_back(plan_of(shape, full ? LinearPath::f32 : LinearPath::general));
  return plans;
}

const LinearPlan& LinearPlans::operator()(const LinearShape& shape) {
  const std::lock_guard lock(mutex_);
  if (const auto found = plans_.find(shape); found != plans_.end()) return found->second;
  return plans_.emplace(shape, measured_ ? measure_linear(shape) : plan_linear(shape, laws_))
      .first->second;
}

#ifndef ROSE_HAVE_CUDA
LinearPlan measure_linear(const LinearShape& shape) {
  check_linear(shape);
  no_cuda("measuring a linear layer");
}
std::vector<TimedLinear> time_linear(const LinearShape&, std::span<const LinearPlan>, int) {
  no_cuda("timing a linear layer");
}
bool linear_paths::small_fits(const LinearShape&) {
  return false;
}
#endif

}  // namespace rose::kernels::gpu
