// Check a norm's arguments.

#include "rose/kernels/gpu/norm.h"

#include <algorithm>

#include "rose/kernels/gpu/norm_arguments.h"

namespace rose::kernels::gpu {
namespace {

// Refuse widths, types and memory that do not fit together.
void check_activation(const Matrix& m, const char* name) {
  check_matrix(m, name);
  if (!is_activation(m.dtype)) bad_argument(name, "f32, bf16 or f16 is needed");
}

void check_like(const Matrix& m, const char* name, const Matrix& like) {
  check_matrix(m, name, like.rows, like.cols, like.dtype);
}

/// Shapes, and how many norms a row of x holds.
std::int64_t check_norm(const Matrix& x, const Matrix& weight, bool heads) {
  constexpr std::int64_t most_rows = 0x7fffffff;
  check_activation(x, "x");
  check_activation(weight, "weight");
  if (weight.rows != 1 || weight.cols == 0) bad_argument("weight", "one row of weights is needed");
  if (heads ? x.cols % weight.cols != 0 : x.cols != weight.cols) {
    bad_argument("weight", "its width does not fit that of x");
  }
  const std::int64_t count = x.cols / weight.cols;
  if (x.rows > most_rows / (count == 0 ? 1 : count)) bad_argument("x", "too many rows");
  return count;
}

void run(const NormArguments& a, [[maybe_unused]] Stream stream) {
  check_like(a.y, "y", a.x);
  if (a.centre) check_matrix(a.bias, "bias", 1, a.weight.cols, a.weight.dtype);
  if (a.x.empty()) return;
#ifdef ROSE_HAVE_CUDA
  launch_norm(a, stream);
#else
  no_cuda("norm");
#endif
}

void run(NormBackwardArguments a, Workspace workspace, [[maybe_unused]] Stream stream) {
  check_like(a.dy, "dy", a.x);
  check_like(a.dx, "dx", a.x);
  if (a.add.data != nullptr) check_like(a.add, "add", a.x);
  if (a.x.empty()) return;
  if (a.inv == nullptr) bad_argument("inverse deviations", "no memory");
  if (a.dweight == nullptr) bad_argument("dweight", "no memory");
  check_workspace(workspace, norm_backward_workspace(a.x.rows * a.heads, a.weight.cols));
  a.partial = static_cast<float*>(workspace.data);
#ifdef ROSE_HAVE_CUDA
  launch_norm_backward(a, stream);
#else
  no_cuda("norm backward");
#endif
}

}  // namespace

// Fill the arguments of each call.
void rmsnorm(const Matrix& x, const Matrix& weight, float eps, const Matrix& y, float* inv_rms,
             Stream stream) {
  check_norm(x, weight, false);
  run({.x = x, .y = y, .weight = weight, .eps = eps, .inv = inv_rms}, stream);
}

void layernorm(const Matrix& x, const Matrix& weight, const Matrix& bias, float eps,
               const Matrix& y, float* mean, float* inv_std, Stream stream) {
  check_norm(x, weight, false);
  run({.x = x,
       .y = y,
       .weight = weight,
       .bias = bias,
       .eps = eps,
       .mean = mean,
       .inv = inv_std,
       .centre = true},
      stream);
}

void rmsnorm_heads(const Matrix& x, const Matrix& weight, float eps, const Matrix& y,
                   float* inv_rms, Stream stream) {
  const std::int64_t heads = check_norm(x, weight, true);
  run({.x = x, .y = y, .weight = weight, .eps = eps, .inv = inv_rms, .heads = heads}, stream);
}

void add_rmsnorm(const Matrix& x, const Matrix& residual, const Matrix& weight, float eps,
                 const Matrix& sum, const Matrix& y, float* inv_rms, Stream stream) {
  check_norm(x, weight, false);
  check_like(residual, "residual", x);
  check_like(sum, "sum", x);
  run({.x = x,
       .residual = residual,
       .sum = sum,
       .y = y,
       .weight = weight,
       .eps = eps,
       .inv = inv_rms},
      stream);
}

void add_layernorm(const Matrix& x, const Matrix& residual, const Matrix& weight,
                   const Matrix& bias, float eps, const Matrix& sum, const Matrix& y, float* mean,
                   float* inv_std, Stream stream) {
  check_norm(x, weight, false);
  check_like(residual, "residual", x);
  check_like(sum, "sum", x);
  run({.x = x,
       .residual = residual,
       .sum = sum,
       .y = y,
       .weight = weight,
       .bias = bias,
       .eps = eps,
       .mean = mean,
       .inv = inv_std,
       .centre = true},
      stream);
}

std::size_t norm_backward_workspace(std::int64_t rows, std::int64_t cols) {
  if (rows <= 0 || cols <= 0) return 0;
  const std::int64_t sums = 2 * std::min(rows, most_norm_runs(cols)) * cols;
  const std::int64_t means = cols > shortest_long_row ? 2 * rows : 0;
  return static_cast<std::size_t>(sums + means) * sizeof(float);
}

void rmsnorm_backward(const Matrix& x, const Matrix& weight, const float* inv_rms, const Matrix& dy,
                      const Matrix& add, const Matrix& dx, float* dweight, Workspace workspace,
                      Stream stream) {
  check_norm(x, weight, false);
  run({.x = x,
       .weight = weight,
       .dy = dy,
       .add = add,
       .dx = dx,
       .inv = inv_rms,
       .dweight = dweight},
      workspace, stream);
}

void layernorm_backward(const Matrix& x, const Matrix& weight, const float* mean,
                        const float* inv_std, const Matrix& dy, const Matrix& add, const Matrix& dx,
                        float* dweight, float* dbias, Workspace workspace, Stream stream) {
  check_norm(x, weight, false);
  if (!x.empty() && mean == nullptr) bad_argument("mean", "no memory");
  if (!x.empty() && dbias == nullptr) bad_argument("dbias", "no memory");
  run({.x = x,
       .weight = weight,
       .dy = dy,
       .add = add,
       .dx = dx,
       .mean = mean,
       .inv = inv_std,
       .dweight = dweight,
       .dbias = dbias},
      workspace, stream);
}

void rmsnorm_heads_backward(const Matrix& x, const Matrix& weight, const float* inv_rms,
                            const Matrix& dy, const Matrix& dx, float* dweight, Workspace workspace,
                            Stream stream) {
  const std::int64_t heads = check_norm(x, weight, true);
  run({.x = x,
       .weight = weight,
       .dy = dy,
       .dx = dx,
       .inv = inv_rms,
       .dweight = dweight,
       .heads = heads},
      workspace, stream);
}

}  // namespace rose::kernels::gpu
