// Check, choose the slices, plan.

#include "rose/kernels/gpu/linear_backward.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"

namespace rose::kernels::gpu {

void run_backward(const BackwardPlan& plan, const Matrix& left, const Matrix& right,
                  const Matrix& out, Workspace workspace, Stream stream);
void launch_bias_backward(const Matrix& dy, float* db, Workspace workspace, Stream stream);
void launch_gelu_bias_backward(const Matrix& x, const Matrix& dy, const Matrix& dx, Gelu kind,
                               float* db, Workspace workspace, Stream stream);

// Cut long sums so that few outputs fill the machine.
std::int64_t backward_slices(const BackwardShape& shape) {
  if (shape.product == BackwardProduct::input || shape.free) return 1;
  constexpr std::int64_t tile_rows = 128, tile_cols = 128, blocks = 200, most = 32, depth = 1024;
  const std::int64_t tiles =
      ((shape.n + tile_rows - 1) / tile_rows) * ((shape.k + tile_cols - 1) / tile_cols);
  std::int64_t slices = 1;
  while (slices < most && tiles * slices < blocks && shape.m % (2 * slices) == 0 &&
         shape.m / (2 * slices) >= depth) {
    slices *= 2;
  }
  return slices;
}

// Ask the library once for each shape.
const BackwardPlan& BackwardPlans::operator()(BackwardShape shape) {
  shape.free = free_;
  const std::scoped_lock lock(mutex_);
  if (const auto found = plans_.find(shape); found != plans_.end()) return found->second;
  constexpr int most = 8, samples = 5;
  std::vector<BackwardPlan> plans =
      backward_plans(shape, backward_slices(shape), measured_ ? most : 1);
  std::size_t best = 0;
  if (plans.size() > 1) {
    const std::vector<Timing> timings = time_backward(plans, samples);
    for (std::size_t i = 1; i < plans.size(); ++i) {
      if (timings[i].median_us < timings[best].median_us) best = i;
    }
  }
  return plans_.emplace(shape, plans[best]).first->second;
}

#ifndef ROSE_HAVE_CUDA
std::vector<BackwardPlan> backward_plans(const BackwardShape&, std::int64_t, int) {
  no_cuda("planning a backward product");
}
std::vector<Timing> time_backward(std::span<const BackwardPlan>, int) {
  no_cuda("timing a backward product");
}
#endif

// Check the arguments.
namespace {

constexpr std::int64_t kChunk = 256;  // rows that one block of bias_backward adds

void check_contiguous(const Matrix& m, const char* name) {
  if (m.rows > 1 && m.row_stride() != m.cols) bad_argument(name, "its rows are not contiguous");
}

void check_product(const BackwardPlan& plan, BackwardProduct product, Workspace workspace) {
  if (plan.shape.product != product) bad_argument("plan", "it is of the other product");
  check_workspace(workspace, plan.workspace_bytes);
}

}  // namespace

void linear_backward_input(const BackwardPlan& plan, const Matrix& dy, const Matrix& w,
                           const Matrix& dx, Workspace workspace, [[maybe_unused]] Stream stream) {
  const BackwardShape& s = plan.shape;
  check_product(plan, BackwardProduct::input, workspace);
  check_matrix(dy, "dy", s.m, s.n, s.in);
  check_matrix(w, "w", s.n, s.k, s.in);
  check_matrix(dx, "dx", s.m, s.k, s.in);
  if (dx.empty()) return;
#ifdef ROSE_HAVE_CUDA
  run_backward(plan, w, dy, dx, workspace, stream);
#else
  no_cuda("linear_backward_input");
#endif
}

void linear_backward_weight(const BackwardPlan& plan, const Matrix& dy, const Matrix& x,
                            const Matrix& dw, Workspace workspace, [[maybe_unused]] Stream stream) {
  const BackwardShape& s = plan.shape;
  check_product(plan, BackwardProduct::weight, workspace);
  check_matrix(dy, "dy", s.m, s.n, s.in);
  check_matrix(x, "x", s.m, s.k, s.in);
  check_matrix(dw, "dw", s.n, s.k, DType::f32);
  check_contiguous(dw, "dw");
  if (dy.empty() || x.empty()) return;
#ifdef ROSE_HAVE_CUDA
  run_backward(plan, x, dy, dw, workspace, stream);
#else
  no_cuda("linear_backward_weight");
#endif
}

std::size_t bias_backward_workspace(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>((rows + kChunk - 1) / kChunk * cols) * sizeof(float);
}

void bias_backward(const Matrix& dy, float* db, Workspace workspace,
                   [[maybe_unused]] Stream stream) {
  check_matrix(dy, "dy");
  if (!is_activation(dy.dtype)) bad_argument("dy", "f32, bf16 or f16 is needed");
  if (dy.empty()) return;
  if (db == nullptr) bad_argument("db", "no memory");
  check_workspace(workspace, bias_backward_workspace(dy.rows, dy.cols));
#ifdef ROSE_HAVE_CUDA
  launch_bias_backward(dy, db, workspace, stream);
#else
  no_cuda("bias_backward");
#endif
}

void gelu_bias_backward(const Matrix& x, const Matrix& dy, const Matrix& dx,
                        [[maybe_unused]] Gelu kind, float* db, Workspace workspace,
                        [[maybe_unused]] Stream stream) {
  check_matrix(x, "x");
  if (!is_activation(x.dtype)) bad_argument("x", "f32, bf16 or f16 is needed");
  check_matrix(dy, "dy", x.rows, x.cols, x.dtype);
  check_matrix(dx, "dx", x.rows, x.cols, x.dtype);
  if (x.empty()) return;
  if (db == nullptr) bad_argument("db", "no memory");
  check_workspace(workspace, bias_backward_workspace(x.rows, x.cols));
#ifdef ROSE_HAVE_CUDA
  launch_gelu_bias_backward(x, dy, dx, kind, db, workspace, stream);
#else
  no_cuda("gelu_bias_backward");
#endif
}

}  // namespace rose::kernels::gpu
