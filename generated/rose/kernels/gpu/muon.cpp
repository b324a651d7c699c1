// Lay out the workspace, and put the step together.

#include "rose/kernels/gpu/muon.h"

#include <algorithm>
#include <array>

namespace rose::kernels::gpu {

// What the device code offers.

/// momentum and update of every element.
void launch_muon_momentum(const MuonParameter& parameter, const MuonStep& step, const float* scale,
                          float* update, Stream stream);
/// x = from / max(length, epsilon) and its transpose; x, from: [rows, cols].
void launch_muon_start(const float* from, const float* length, float epsilon, const Matrix& x,
                       const Matrix& turned, Stream stream);
/// x = a x + moved, and its transpose.
void launch_muon_move(const float* moved, float a, const Matrix& x, const Matrix& turned,
                      Stream stream);
/// gram = b gram + c square.
void launch_muon_square(const float* square, float b, float c, const Matrix& gram, Stream stream);
void launch_muon_finish(const MuonParameter& parameter, const MuonStep& step,
                        const Matrix& direction, Stream stream);

namespace {

// Where things lie.
struct Layout {
  Matrix x, turned;  ///< [short, long] and [long, short]
  Matrix gram;
  std::size_t update = 0, x_at = 0, turned_at = 0, gram_at = 0, square = 0, norm = 0, result = 0,
              products = 0, end = 0;
};

constexpr std::size_t up(std::size_t bytes) {
  constexpr std::size_t line = 256;
  return (bytes + line - 1) / line * line;
}

Layout lay_out(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t unit = 8;  // bf16 numbers in 16 bytes
  const std::int64_t m = std::min(rows, cols), n = std::max(rows, cols);
  const std::int64_t pm = (m + unit - 1) / unit * unit, pn = (n + unit - 1) / unit * unit;
  const auto bytes = [](std::int64_t r, std::int64_t c, std::int64_t each) {
    return up(static_cast<std::size_t>(r * c * each));
  };
  Layout l;
  l.x = {.rows = m, .cols = n, .stride = pn};
  l.turned = {.rows = n, .cols = m, .stride = pm};
  l.gram = {.rows = m, .cols = m, .stride = pm};
  l.x_at = l.update + bytes(m, n, 4);
  l.turned_at = l.x_at + bytes(m, pn, 2);
  l.gram_at = l.turned_at + bytes(n, pm, 2);
  l.square = l.gram_at + bytes(m, pm, 2);
  l.norm = l.square + bytes(m, m, 4);
  const std::array<Matrix, 1> update{{{.dtype = DType::f32, .rows = m, .cols = n}}};
  l.result = l.norm + up(gradient_norm_workspace(update));
  l.products = l.result + up(2 * sizeof(float));
  l.end = l.products;
  return l;
}

}  // namespace

// Plan the three products.
MuonPlan plan_muon(std::int64_t rows, std::int64_t cols, LinearPlans* plans) {
  if (rows < 0 || cols < 0) bad_argument("shape", "a negative size");
  const std::int64_t m = std::min(rows, cols), n = std::max(rows, cols);
  const auto plan = [&](std::int64_t columns, std::int64_t terms, DType out) {
    const LinearShape shape{.m = m, .n = columns, .k = terms, .out = out};
    return plans != nullptr ? (*plans)(shape) : plan_linear(shape);
  };
  MuonPlan p{.rows = rows, .cols = cols};
  p.gram = plan(m, n, DType::bf16);
  p.square = plan(m, m, DType::f32);
  p.move = plan(n, m, DType::f32);
  p.workspace_bytes =
      lay_out(rows, cols).end +
      std::max({p.gram.workspace_bytes, p.square.workspace_bytes, p.move.workspace_bytes});
  return p;
}

// Momentum, length, rounds, update.
void muon(const MuonPlan& plan, const MuonParameter& p, const MuonStep& step, const float* scale,
          Workspace workspace, Stream stream) {
  check_step(p, plan.rows, plan.cols);
  if (p.weight.empty()) return;
  if (p.first == nullptr) bad_argument("momentum", "no memory");
  check_workspace(workspace, plan.workspace_bytes);
#ifdef ROSE_HAVE_CUDA
  Layout l = lay_out(plan.rows, plan.cols);
  auto* const memory = static_cast<std::byte*>(workspace.data);
  l.x.data = memory + l.x_at, l.turned.data = memory + l.turned_at,
  l.gram.data = memory + l.gram_at;
  auto* const update = reinterpret_cast<float*>(memory + l.update);
  auto* const square = reinterpret_cast<float*>(memory + l.square);
  auto* const length = reinterpret_cast<float*>(memory + l.result);
  const Workspace products{memory + l.products, workspace.bytes - l.products};
  const std::int64_t m = l.x.rows, n = l.x.cols;
  const bool tall = plan.rows > plan.cols;

  launch_muon_momentum(p, step, scale, update, stream);
  const std::array<Matrix, 1> whole{{{update, DType::f32, plan.rows, plan.cols}}};
  gradient_norm(whole, 1.0f, length, {memory + l.norm, l.result - l.norm}, stream);
  launch_muon_start(update, length, step.epsilon, tall ? l.turned : l.x, tall ? l.x : l.turned,
                    stream);
  const auto [a, b, c] = step.coefficients;
  for (int i = 0; i < step.iterations; ++i) {
    linear(plan.gram, {.x = l.x, .w = l.x, .y = l.gram}, products, stream);
    linear(plan.square, {.x = l.gram, .w = l.gram, .y = {square, DType::f32, m, m}}, products,
           stream);
    launch_muon_square(square, b, c, l.gram, stream);
    linear(plan.move, {.x = l.gram, .w = l.turned, .y = {update, DType::f32, m, n}}, products,
           stream);
    launch_muon_move(update, a, l.x, l.turned, stream);
  }
  launch_muon_finish(p, step, tall ? l.turned : l.x, stream);
#else
  static_cast<void>(step), static_cast<void>(scale), static_cast<void>(stream);
  no_cuda("muon");
#endif
}

}  // namespace rose::kernels::gpu
