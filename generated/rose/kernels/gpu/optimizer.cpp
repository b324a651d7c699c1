// Check what a step is given.

#include "rose/kernels/gpu/optimizer.h"

namespace rose::kernels::gpu {

void launch_adamw(const AdamWParameter&, const AdamWStep&, const float*, Stream);
void launch_gradient_norm(std::span<const Matrix>, float, float*, Workspace, Stream);

namespace {

void check_contiguous(const Matrix& m, const char* name) {
  check_matrix(m, name);
  if (!is_activation(m.dtype)) bad_argument(name, "f32, bf16 or f16 is needed");
  if (m.rows > 1 && m.row_stride() != m.cols) bad_argument(name, "its rows are not contiguous");
}

std::int64_t blocks_of(std::span<const Matrix> gradients) {
  std::int64_t blocks = 0;
  for (const Matrix& g : gradients) blocks += (g.rows * g.cols + norm_block - 1) / norm_block;
  return blocks;
}

}  // namespace

void check_step(const AdamWParameter& p, std::int64_t rows, std::int64_t cols) {
  check_contiguous(p.weight, "weight");
  if (p.weight.dtype == DType::f16) bad_argument("weight", "f32 or bf16 is needed");
  check_matrix(p.weight, "weight", rows, cols, p.weight.dtype);
  check_contiguous(p.gradient, "gradient");
  check_matrix(p.gradient, "gradient", rows, cols, p.gradient.dtype);
  if (p.copy.data != nullptr) {
    check_contiguous(p.copy, "copy");
    check_matrix(p.copy, "copy", rows, cols, p.copy.dtype);
    if (p.copy.dtype == DType::f32) bad_argument("copy", "bf16 or f16 is needed");
    if (p.weight.dtype != DType::f32) bad_argument("copy", "only an f32 weight has one");
  }
  if (p.by_chance && p.weight.dtype != DType::bf16)
    bad_argument("by_chance", "an f32 weight is not rounded");
}

void adamw(const AdamWParameter& p, [[maybe_unused]] const AdamWStep& step,
           [[maybe_unused]] const float* scale, [[maybe_unused]] Stream stream) {
  check_step(p, p.weight.rows, p.weight.cols);
  if (p.weight.empty()) return;
  if (p.first == nullptr || p.second == nullptr) bad_argument("moments", "no memory");
#ifdef ROSE_HAVE_CUDA
  launch_adamw(p, step, scale, stream);
#else
  no_cuda("adamw");
#endif
}

std::size_t gradient_norm_workspace(std::span<const Matrix> gradients) {
  return 2 * sizeof(double) * static_cast<std::size_t>(blocks_of(gradients));
}

void gradient_norm(std::span<const Matrix> gradients, [[maybe_unused]] float limit, float* result,
                   Workspace workspace, [[maybe_unused]] Stream stream) {
  for (const Matrix& g : gradients) check_contiguous(g, "gradients");
  if (result == nullptr) bad_argument("result", "no memory");
  check_workspace(workspace, gradient_norm_workspace(gradients));
#ifdef ROSE_HAVE_CUDA
  launch_gradient_norm(gradients, limit, result, workspace, stream);
#else
  no_cuda("gradient_norm");
#endif
}

}  // namespace rose::kernels::gpu
