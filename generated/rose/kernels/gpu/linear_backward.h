// Go back through a linear layer on a GPU.

#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "rose/kernels/activation.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// The two products behind y[M, N] = x[M, K] w[N, K]^T.
enum class BackwardProduct : std::uint8_t {
  input,  ///< dx[M, K] = dy[M, N] w[N, K], rounded to the type of dy
  weight  ///< dw[N, K] += dy[M, N]^T x[M, K], f32
};

struct BackwardShape {
  BackwardProduct product = BackwardProduct::input;
  std::int64_t m = 0, n = 0, k = 0;
  DType in = DType::bf16;  ///< of x, w and dy: bf16, f16 or f32
  bool free = false;       ///< the library may cut sums as it likes: for measuring only

  friend auto operator<=>(const BackwardShape&, const BackwardShape&) = default;
};

struct BackwardPlan {
  BackwardShape shape;
  std::int64_t slices = 1;  ///< of M in a weight's gradient, equal ones, added in ascending order
  std::array<std::uint64_t, 8> algorithm{};  ///< cuBLASLt's, opaque
  std::size_t library_workspace = 0, workspace_bytes = 0;
};

// Plan once, run often.

/// Into how many slices the sum over M is cut: a function of the shape alone.
std::int64_t backward_slices(const BackwardShape& shape);

/// The library's proposals for a number of slices, best first. Throws core::Error where it has none.
std::vector<BackwardPlan> backward_plans(const BackwardShape& shape, std::int64_t slices, int most);

/// How long each plan takes on random data. Allocates, and waits for the device.
std::vector<Timing> time_backward(std::span<const BackwardPlan> plans, int samples);

/// Plans by shape, each made once: the library's first proposal, or the fastest of eight by measurement.
class BackwardPlans {
 public:
  explicit BackwardPlans(bool measured, bool free = false) : measured_(measured), free_(free) {}
  /// Valid as long as this object.
  const BackwardPlan& operator()(BackwardShape shape);

 private:
  bool measured_, free_;
  std::mutex mutex_;
  std::map<BackwardShape, BackwardPlan> plans_;
};

/// Enqueue. Rows may be strided, but those of dw may not.
void linear_backward_input(const BackwardPlan& plan, const Matrix& dy, const Matrix& w,
                           const Matrix& dx, Workspace workspace, Stream stream);
void linear_backward_weight(const BackwardPlan& plan, const Matrix& dy, const Matrix& x,
                            const Matrix& dw, Workspace workspace, Stream stream);

/// db[N] += the sum over rows of dy[M, N], in an order that the shape fixes.
void bias_backward(const Matrix& dy, float* db, Workspace workspace, Stream stream);
std::size_t bias_backward_workspace(std::int64_t rows, std::int64_t cols);

/// gelu_backward into dx, and bias_backward of dx, in one visit and with the bits of the two. dx may be x or dy.
void gelu_bias_backward(const Matrix& x, const Matrix& dy, const Matrix& dx, Gelu kind, float* db,
                        Workspace workspace, Stream stream);

}  // namespace rose::kernels::gpu
