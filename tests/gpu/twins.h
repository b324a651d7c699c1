// The frame of the twin tests: a fuzzer that draws awkward shapes and layouts, inputs in device memory with their values on the
// host, outputs that are poisoned and guarded, and one comparison. An operation is one line in twins_test.cpp,
//
//   ROSE_TWIN(rmsnorm, 40, twin_rmsnorm)      // name, cases, void twin_rmsnorm(Fuzz&)
//
// and a function in a header of its own, which draws, computes the reference in double precision, calls, and expects:
//
//   inline void twin_rmsnorm(Fuzz& fuzz) {
//     const std::int64_t rows = fuzz.size(300), cols = fuzz.size(5000);
//     const DType dtype = fuzz.activation();
//     const Input x = fuzz.input(rows, cols, dtype);
//     Output y = fuzz.output(rows, cols, dtype);
//     … reference[i], bounds[i] from x.at(r, c) …
//     rmsnorm(x.view(), …, y.view(), {});
//     fuzz.expect(y, reference, bounds, "y");
//   }
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "labs/gpu/gpu_test.h"
#include "rose/core/rng.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// A matrix on the device, and the same values on the host.
class Input {
 public:
  Input(std::vector<float> values, std::int64_t rows, std::int64_t cols, DType dtype, Layout layout)
      : values_(std::move(values)),
        cols_(cols),
        device_(DeviceMatrix::of(values_, rows, cols, dtype, layout)) {
    for (float& value : values_) value = rounded(value, dtype);
  }
  Matrix view() const { return device_.view(); }
  double at(std::int64_t r, std::int64_t c) const {
    return values_[static_cast<std::size_t>(r * cols_ + c)];
  }
  const std::vector<float>& values() const { return values_; }
  /// What the device holds now, for operations that work in place. Expects that nothing around the rows was written.
  std::vector<float> current() const {
    device_.expect_guards("in place");
    return device_.values();
  }

 private:
  std::vector<float> values_;
  std::int64_t cols_;
  DeviceMatrix device_;
};

/// Integers on the device and on the host: positions, ids, offsets.
class Integers {
 public:
  explicit Integers(std::vector<std::int32_t> values)
      : values_(std::move(values)), device_(Buffer::of(std::span<const std::int32_t>(values_))) {}
  const std::int32_t* data() const { return device_.as<std::int32_t>(); }
  std::int32_t operator[](std::int64_t i) const { return values_[static_cast<std::size_t>(i)]; }
  const std::vector<std::int32_t>& values() const { return values_; }

 private:
  std::vector<std::int32_t> values_;
  Buffer device_;
};

struct Output {
  DeviceMatrix matrix;
  DType dtype;
  Matrix view() const { return matrix.view(); }
};

class Fuzz {
 public:
  explicit Fuzz(std::uint64_t seed) : rng_(seed) {}

  /// A size from 0 to `most`: none, one, around powers of two, primes, any, the largest; a multiple of `multiple`.
  std::int64_t size(std::int64_t most, std::int64_t multiple = 1) {
    constexpr std::array<std::int64_t, 12> primes{2,  3,   5,   7,   13,   31,
                                                  61, 127, 257, 509, 1021, 4093};
    std::int64_t n = 0;
    switch (rng_.below(8)) {
      case 0: n = 0; break;
      case 1: n = multiple; break;
      case 2: n = multiple * primes[rng_.below(primes.size())]; break;
      case 3:
      case 4: {
        const std::int64_t power = std::int64_t{1} << rng_.below(13);
        n = power + static_cast<std::int64_t>(rng_.below(3)) - 1;
        break;
      }
      case 5: n = most; break;
      default: n = static_cast<std::int64_t>(rng_.below(static_cast<std::uint32_t>(most) + 1));
    }
    n = std::min(n, most) / multiple * multiple;
    note(std::to_string(n));
    return n;
  }
  /// As size, never 0.
  std::int64_t some(std::int64_t most, std::int64_t multiple = 1) {
    const std::int64_t n = size(most, multiple);
    return n > 0 ? n : multiple;
  }
  bool coin() { return rng_.below(2) == 0; }
  std::uint32_t below(std::uint32_t n) { return rng_.below(n); }
  float uniform() { return rng_.uniform(); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + rng_.below(static_cast<std::uint32_t>(values.size())));
  }
  DType activation() {
    const DType dtype = one_of({DType::bf16, DType::bf16, DType::f32, DType::f16});
    note(std::string(info(dtype).name));
    return dtype;
  }
  /// Whether matrices may start anywhere and have gaps of any size between rows (true by default), or start at multiples of 16
  /// bytes with strides to match.
  void misalign(bool allowed) { misalign_ = allowed; }

  /// Normal numbers times `scale`, some rows shifted, some with wide exponents.
  Input input(std::int64_t rows, std::int64_t cols, DType dtype, float scale = 1) {
    std::vector<float> values(static_cast<std::size_t>(rows * cols));
    const std::uint32_t kind = rng_.below(3);
    const float shift = kind == 1 ? scale : 0.0f;
    for (float& value : values) {
      const float draw = scale * rng_.normal();
      constexpr std::uint32_t exponents = 12;
      value =
          kind == 2 ? std::ldexp(draw, 2 - static_cast<int>(rng_.below(exponents))) : draw + shift;
    }
    return Input(std::move(values), rows, cols, dtype, layout(dtype));
  }
  Input input(std::vector<float> values, std::int64_t rows, std::int64_t cols, DType dtype) {
    return Input(std::move(values), rows, cols, dtype, layout(dtype));
  }
  Output output(std::int64_t rows, std::int64_t cols, DType dtype) {
    return {DeviceMatrix(rows, cols, dtype, layout(dtype)), dtype};
  }

  /// Waits, compares element by element and as a whole, and looks at the guards.
  void expect(const Output& output, std::span<const double> reference,
              std::span<const double> bounds, std::string_view name) {
    const std::string what = std::string(name) + " of (" + drawn_ + ")";
    const double norm = expect_close(output.matrix.values(), reference, bounds, output.dtype, what);
    output.matrix.expect_guards(what);
    worst_norm_ = std::max(worst_norm_, norm);
  }
  double worst_norm() const { return worst_norm_; }
  const std::string& drawn() const { return drawn_; }

  void note(const std::string& value) { drawn_ += (drawn_.empty() ? "" : ", ") + value; }

 private:
  Layout layout(DType dtype) {
    const auto sixteen = static_cast<std::int64_t>(16 / element_bytes(dtype));
    const std::int64_t unit = misalign_ && coin() ? 1 : sixteen;
    return {.gap = unit * rng_.below(3), .offset = unit * rng_.below(3)};
  }

  core::Rng rng_;
  bool misalign_ = true;
  std::string drawn_;
  double worst_norm_ = 0;
};

/// ROSE_TWIN_CASES=5 draws fewer cases of each twin: under compute-sanitizer, which slows a kernel down many times.
inline int at_most_cases(int cases) {
  const char* limit = std::getenv("ROSE_TWIN_CASES");
  return limit != nullptr ? std::clamp(std::atoi(limit), 1, cases) : cases;
}

template <class F>
void run_twin(const char* name, int cases, F&& twin) {
  double worst = 0;
  cases = at_most_cases(cases);
  for (int i = 0; i < cases && !::testing::Test::HasFailure(); ++i) {
    Fuzz fuzz(static_cast<std::uint64_t>(i) + 1);
    SCOPED_TRACE(std::string(name) + ", seed " + std::to_string(i + 1));
    try {
      twin(fuzz);
    } catch (const std::exception& error) {
      ADD_FAILURE() << name << "(" << fuzz.drawn() << "): " << error.what();
    }
    worst = std::max(worst, fuzz.worst_norm());
  }
  std::printf("%s: %d cases, largest relative norm of the error %.2e\n", name, cases, worst);
}

using GpuTwin = GpuTest;

#define ROSE_TWIN(name, cases, twin)                    \
  TEST_F(GpuTwin, name) {                               \
    ::rose::kernels::gpu::run_twin(#name, cases, twin); \
  }

}  // namespace rose::kernels::gpu
