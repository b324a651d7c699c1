// Check on the host, then launch.

#include "rose/kernels/gpu/elementwise.h"

namespace rose::kernels::gpu {

// Stand in for the launches in a build without CUDA.
#ifdef ROSE_HAVE_CUDA
void launch_add(const Matrix&, const Matrix&, const Matrix&, Stream);
void launch_silu_multiply(const Matrix&, const Matrix&, const Matrix&, Stream);
void launch_silu_multiply_backward(const Matrix&, const Matrix&, const Matrix&, const Matrix&,
                                   const Matrix&, Stream);
void launch_silu(const Matrix&, const Matrix&, Stream);
void launch_silu_backward(const Matrix&, const Matrix&, const Matrix&, Stream);
void launch_gelu(const Matrix&, const Matrix&, Gelu, Stream);
void launch_gelu_backward(const Matrix&, const Matrix&, const Matrix&, Gelu, Stream);
void launch_cast(const Matrix&, const Matrix&, Stream);
void launch_cast_stochastic(const Matrix&, const RoundingKey&, const Matrix&, Stream);
#define ROSE_LAUNCH(name, ...) launch_##name(__VA_ARGS__)
#else
#define ROSE_LAUNCH(name, ...) no_cuda(#name)
#endif

namespace {

void check_like(const Matrix& m, const char* name, const Matrix& like) {
  check_matrix(m, name, like.rows, like.cols, like.dtype);
}

void check_activation(const Matrix& m, const char* name) {
  check_matrix(m, name);
  if (!is_activation(m.dtype)) bad_argument(name, "f32, bf16 or f16 is needed");
}

}  // namespace

// Name what does not fit.
void add(const Matrix& a, const Matrix& b, const Matrix& out, [[maybe_unused]] Stream stream) {
  check_activation(a, "a");
  check_like(b, "b", a);
  check_like(out, "out", a);
  if (!a.empty()) ROSE_LAUNCH(add, a, b, out, stream);
}

void silu_multiply(const Matrix& gate, const Matrix& up, const Matrix& out,
                   [[maybe_unused]] Stream stream) {
  check_activation(gate, "gate");
  check_like(up, "up", gate);
  check_like(out, "out", gate);
  if (!gate.empty()) ROSE_LAUNCH(silu_multiply, gate, up, out, stream);
}

void silu_multiply_backward(const Matrix& gate, const Matrix& up, const Matrix& dy,
                            const Matrix& dgate, const Matrix& dup,
                            [[maybe_unused]] Stream stream) {
  check_activation(gate, "gate");
  check_like(up, "up", gate);
  check_like(dy, "dy", gate);
  check_like(dgate, "dgate", gate);
  check_like(dup, "dup", gate);
  if (!gate.empty()) ROSE_LAUNCH(silu_multiply_backward, gate, up, dy, dgate, dup, stream);
}

void silu(const Matrix& x, const Matrix& out, [[maybe_unused]] Stream stream) {
  check_activation(x, "x");
  check_like(out, "out", x);
  if (!x.empty()) ROSE_LAUNCH(silu, x, out, stream);
}

void silu_backward(const Matrix& x, const Matrix& dy, const Matrix& dx,
                   [[maybe_unused]] Stream stream) {
  check_activation(x, "x");
  check_like(dy, "dy", x);
  check_like(dx, "dx", x);
  if (!x.empty()) ROSE_LAUNCH(silu_backward, x, dy, dx, stream);
}

void gelu(const Matrix& x, const Matrix& out, [[maybe_unused]] Gelu kind,
          [[maybe_unused]] Stream stream) {
  check_activation(x, "x");
  check_like(out, "out", x);
  if (!x.empty()) ROSE_LAUNCH(gelu, x, out, kind, stream);
}

void gelu_backward(const Matrix& x, const Matrix& dy, const Matrix& dx, [[maybe_unused]] Gelu kind,
                   [[maybe_unused]] Stream stream) {
  check_activation(x, "x");
  check_like(dy, "dy", x);
  check_like(dx, "dx", x);
  if (!x.empty()) ROSE_LAUNCH(gelu_backward, x, dy, dx, kind, stream);
}

void cast(const Matrix& x, const Matrix& out, [[maybe_unused]] Stream stream) {
  check_activation(x, "x");
  check_activation(out, "out");
  check_matrix(out, "out", x.rows, x.cols, out.dtype);
  if (!x.empty()) ROSE_LAUNCH(cast, x, out, stream);
}

void cast_stochastic(const Matrix& x, [[maybe_unused]] const RoundingKey& key, const Matrix& out,
                     [[maybe_unused]] Stream stream) {
  check_matrix(x, "x", x.rows, x.cols, DType::f32);
  check_matrix(out, "out", x.rows, x.cols, DType::bf16);
  if (key.first_element < 0) bad_argument("first_element", "it is negative");
  if (!x.empty()) ROSE_LAUNCH(cast_stochastic, x, key, out, stream);
}

}  // namespace rose::kernels::gpu
