// Multiply activations by a weight, for every number of rows, with the same bits.

#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// What follows the product. swiglu: the weight is [2N, K], N rows of the gate and then N rows of the up projection, and
/// y = silu(gate) * up.
enum class Activation : std::uint8_t { none, gelu_tanh, gelu_exact, silu, swiglu };

/// y[M, N] = x[M, K] w[N, K]^T, then, each rounded to the type of y: + bias, activation, * scale, + residual.
/// The product and its bias are rounded together, once.
struct LinearShape {
  std::int64_t m = 0, n = 0, k = 0;
  DType in = DType::bf16;   ///< of x, w and the bias: bf16, f16 or f32
  DType out = DType::bf16;  ///< of y and the residual: the same as `in`, or f32
  bool bias = false;
  Activation activation = Activation::none;
  bool scaled = false;
  bool residual = false;
  bool aligned = true;  ///< x, w and their rows begin at multiples of 16 bytes

  friend auto operator<=>(const LinearShape&, const LinearShape&) = default;
  std::int64_t weight_rows() const { return activation == Activation::swiglu ? 2 * n : n; }
};

/// Which code computes it. All give the same bits.
enum class LinearPath : std::uint8_t {
  none,     ///< nothing to do
  library,  ///< cuBLASLt, with an algorithm that does not split K
  small,    ///< few rows: narrow column tiles, weights read once (sm_90)
  general,  ///< tensor cores for any shape and alignment
  f32,      ///< fp32 without tensor cores: one ascending chain of fma for each output
  resident  ///< at most eight rows: all of the weight in flight at once (sm_90)
};

struct LinearPlan {
  LinearShape shape;
  LinearPath path = LinearPath::none;
  int variant = 0;                           ///< tile and cluster sizes, where a path has several
  std::array<std::uint64_t, 8> algorithm{};  ///< cuBLASLt's, opaque
  std::size_t library_workspace = 0;         ///< bytes that the library wants
  std::size_t workspace_bytes = 0;           ///< what `linear` needs in all
  std::string describe() const;              ///< "small, 8 columns, cluster of 4"
};

struct LinearArguments {
  Matrix x, w;
  const void* bias = nullptr;  ///< [w.rows]
  float scale = 1;
  Matrix residual = {};  ///< may be y
  Matrix y;
};

// Plan once, run often.

/// Throws core::Error (invalid_argument) naming the field for a shape that makes no sense, unsupported for types it has no kernel for.
void check_linear(const LinearShape& shape);

/// By rules that were measured; takes some microseconds. Without `laws`: see LinearPlans.
LinearPlan plan_linear(const LinearShape& shape, bool laws = true);

/// Every plan that computes the shape: paths, tiles, the library's algorithms. When `verified`, each runs once
/// on random data, and those whose bits differ from the plain loop are left out. That allocates, and waits for the device.
std::vector<LinearPlan> linear_candidates(const LinearShape& shape, bool verified);

/// How long each plan takes on random data that is not in the L2, interleaved. Allocates.
struct TimedLinear {
  LinearPlan plan;
  Timing timing;
};
std::vector<TimedLinear> time_linear(const LinearShape& shape, std::span<const LinearPlan> plans,
                                     int samples);

/// The fastest of the verified candidates, by measurement on random data. Takes a fraction of a second; allocates.
LinearPlan measure_linear(const LinearShape& shape);

/// Plans by shape, each made once: by measurement, or by rules. May be shared by threads.
class LinearPlans {
 public:
  /// Without `laws`, what the library would split along K is given to it: bits then depend on M. For comparison.
  explicit LinearPlans(bool measured, bool laws = true) : measured_(measured), laws_(laws) {}
  /// Valid as long as this object.
  const LinearPlan& operator()(const LinearShape& shape);

 private:
  bool measured_, laws_;
  std::mutex mutex_;
  std::map<LinearShape, LinearPlan> plans_;
};

/// Enqueues. Throws core::Error naming the argument that does not fit the plan, before anything is enqueued.
void linear(const LinearPlan& plan, const LinearArguments& arguments, Workspace workspace,
            Stream stream);

}  // namespace rose::kernels::gpu
