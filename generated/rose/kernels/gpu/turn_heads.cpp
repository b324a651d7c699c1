// Check what is to be turned.

#include "rose/kernels/gpu/turn_heads.h"

#include <fmt/format.h>

namespace rose::kernels::gpu {

void launch_turn_heads(const HeadTurn&, const Matrix&, const Matrix&, float*, float*, Stream);
void launch_turn_heads_backward(const HeadTurn&, const Matrix&, const float*, const float*,
                                const Matrix&, float*, float*, Workspace, Stream);

namespace {

constexpr std::int64_t kMostRuns = 528;  // blocks of a backward pass, for queries and for keys

void check_heads(const HeadTurn& t, const Matrix& m, const char* name) {
  check_matrix(m, name, m.rows, (t.heads + t.kv_heads) * t.head_dim, m.dtype);
  if (!is_activation(m.dtype)) bad_argument(name, "f32, bf16 or f16 is needed");
  constexpr std::int64_t lanes = 8, unit = 16;
  if (reinterpret_cast<std::uintptr_t>(m.data) % unit != 0 || m.row_stride() % lanes != 0)
    bad_argument(name, "rows must begin at multiples of 16 bytes");
}

void check_turn(const HeadTurn& t) {
  if (!can_turn_heads(t.head_dim)) {
    bad_argument("head_dim",
                 fmt::format("heads of {}, where a power of two is needed", t.head_dim));
  }
  check_matrix(t.q_norm, "q_norm", 1, t.head_dim, t.q_norm.dtype);
  check_matrix(t.k_norm, "k_norm", 1, t.head_dim, t.q_norm.dtype);
  constexpr std::uintptr_t unit = 16;
  if (reinterpret_cast<std::uintptr_t>(t.q_norm.data) % unit != 0)
    bad_argument("q_norm", "weights must begin at multiples of 16 bytes");
  if (reinterpret_cast<std::uintptr_t>(t.k_norm.data) % unit != 0)
    bad_argument("k_norm", "weights must begin at multiples of 16 bytes");
  if (t.cos == nullptr || t.sin == nullptr) bad_argument("cos", "no memory");
}

}  // namespace

void turn_heads(const HeadTurn& turn, const Matrix& x, const Matrix& y,
                [[maybe_unused]] float* q_inv, [[maybe_unused]] float* k_inv,
                [[maybe_unused]] Stream stream) {
  check_turn(turn);
  check_heads(turn, x, "x");
  check_heads(turn, y, "y");
  if (y.rows != x.rows || y.dtype != x.dtype) bad_argument("y", "it is not like x");
  if (x.empty()) return;
#ifdef ROSE_HAVE_CUDA
  launch_turn_heads(turn, x, y, q_inv, k_inv, stream);
#else
  no_cuda("turn_heads");
#endif
}

std::size_t turn_heads_backward_workspace(std::int64_t head_dim) {
  return static_cast<std::size_t>(2 * kMostRuns * head_dim) * sizeof(float);
}

void turn_heads_backward(const HeadTurn& turn, const Matrix& x, const float* q_inv,
                         const float* k_inv, const Matrix& gradient, float* dq_norm, float* dk_norm,
                         Workspace workspace, [[maybe_unused]] Stream stream) {
  check_turn(turn);
  check_heads(turn, x, "x");
  check_heads(turn, gradient, "gradient");
  if (gradient.rows != x.rows || gradient.dtype != x.dtype)
    bad_argument("gradient", "it is not like x");
  if (x.empty()) return;
  if (q_inv == nullptr || k_inv == nullptr) bad_argument("inverse deviations", "no memory");
  if (dq_norm == nullptr || dk_norm == nullptr) bad_argument("dq_norm", "no memory");
  check_workspace(workspace, turn_heads_backward_workspace(turn.head_dim));
#ifdef ROSE_HAVE_CUDA
  launch_turn_heads_backward(turn, x, q_inv, k_inv, gradient, dq_norm, dk_norm, workspace, stream);
#else
  no_cuda("turn_heads_backward");
#endif
}

}  // namespace rose::kernels::gpu
