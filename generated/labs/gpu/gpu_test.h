// Test kernels: the fixture, poisoned matrices, comparison with double precision.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/rng.h"
#include "rose/kernels/dtype.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// Skips without a GPU; fails instead when ROSE_REQUIRE_GPU is 1. Name suites and tests so that they match *Gpu*.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (available()) return;
    const char* required = std::getenv("ROSE_REQUIRE_GPU");
    if (required != nullptr && std::string_view(required) == "1") {
      FAIL() << "ROSE_REQUIRE_GPU=1, and no CUDA device answers";
    }
    GTEST_SKIP() << "no CUDA device";
  }
};

/// Stores a value as an element of the type, and reads it back.
inline std::size_t element_bytes(DType dtype) {
  return static_cast<std::size_t>(info(dtype).block_bytes);
}

inline void store(float value, DType dtype, std::byte* to) {
  if (dtype == DType::f32) std::memcpy(to, &value, sizeof value);
  if (dtype == DType::bf16) {
    const std::uint16_t bits = to_bf16(value).bits;
    std::memcpy(to, &bits, sizeof bits);
  }
  if (dtype == DType::f16) {
    const std::uint16_t bits = to_f16(value).bits;
    std::memcpy(to, &bits, sizeof bits);
  }
}

inline float load(DType dtype, const std::byte* from) {
  std::uint16_t bits = 0;
  float value = 0;
  if (dtype == DType::f32) {
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  std::memcpy(&bits, from, sizeof bits);
  return dtype == DType::bf16 ? to_float(bf16{bits}) : to_float(f16{bits});
}

inline float rounded(float value, DType dtype) {
  std::byte bytes[sizeof(float)] = {};
  store(value, dtype, bytes);
  return load(dtype, bytes);
}

// A matrix in device memory whose surroundings are guarded.
struct Layout {
  std::int64_t gap = 0;     ///< elements between the end of a row and the next; they are guards
  std::int64_t offset = 0;  ///< elements before the first row: 1 makes it as misaligned as can be
};

class DeviceMatrix {
 public:
  /// All 0xff, a NaN in every float type.
  DeviceMatrix(std::int64_t rows, std::int64_t cols, DType dtype, Layout layout = {})
      : rows_(rows), cols_(cols), dtype_(dtype), layout_(layout) {
    const std::int64_t elements = layout.offset + rows * (cols + layout.gap) + margin;
    buffer_ = Buffer(static_cast<std::size_t>(elements) * element_bytes(dtype));
    buffer_.poison();
  }

  /// Holds these values, rounded to the type.
  static DeviceMatrix of(std::span<const float> values, std::int64_t rows, std::int64_t cols,
                         DType dtype, Layout layout = {}) {
    DeviceMatrix matrix(rows, cols, dtype, layout);
    std::vector<std::byte> bytes(matrix.buffer_.bytes(), std::byte{0xff});
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        store(values[static_cast<std::size_t>(r * cols + c)], dtype,
              bytes.data() + matrix.at(r, c));
      }
    }
    matrix.buffer_.upload(bytes);
    return matrix;
  }

  Matrix view() const {
    return {.data = buffer_.as<std::byte>() + at(0, 0),
            .dtype = dtype_,
            .rows = rows_,
            .cols = cols_,
            .stride = layout_.gap == 0 ? 0 : cols_ + layout_.gap};
  }

  /// The elements, row by row. Waits for the device.
  std::vector<float> values() const {
    const std::vector<std::byte> bytes = download();
    std::vector<float> out;
    out.reserve(static_cast<std::size_t>(rows_ * cols_));
    for (std::int64_t r = 0; r < rows_; ++r) {
      for (std::int64_t c = 0; c < cols_; ++c) out.push_back(load(dtype_, bytes.data() + at(r, c)));
    }
    return out;
  }

  /// Expects that nothing outside the rows was written.
  void expect_guards(std::string_view name) const {
    const std::vector<std::byte> bytes = download();
    std::vector<bool> inside(bytes.size(), false);
    const std::size_t row = static_cast<std::size_t>(cols_) * element_bytes(dtype_);
    for (std::int64_t r = 0; r < rows_; ++r) {
      std::fill_n(inside.begin() + static_cast<std::ptrdiff_t>(at(r, 0)), row, true);
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (inside[i] || bytes[i] == std::byte{0xff}) continue;
      ADD_FAILURE() << name << ": byte " << i << " outside the rows was written";
      return;
    }
  }

 private:
  static constexpr std::int64_t margin = 64;

  std::size_t at(std::int64_t r, std::int64_t c) const {
    return static_cast<std::size_t>(layout_.offset + r * (cols_ + layout_.gap) + c) *
           element_bytes(dtype_);
  }
  std::vector<std::byte> download() const {
    synchronize({});
    std::vector<std::byte> bytes(buffer_.bytes());
    buffer_.download(bytes);
    return bytes;
  }

  std::int64_t rows_, cols_;
  DType dtype_;
  Layout layout_;
  Buffer buffer_;
};

// Compare with double precision, as a whole and at the worst element.

/// gamma_n of a sum of n terms in fp32.
inline double gamma(double n) {
  constexpr double u = 0x1p-24;
  return n * u / (1 - n * u);
}

/// What storing a value in the type may change, relative to the value: half a unit in the last place.
inline double storage_error(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-9 : dtype == DType::f16 ? 0x1p-12 : 0x1p-25;
}

/// Expects |actual - reference| <= bound for each element, where the bound of element i is bounds[i] plus the error of storing it, and
/// prints both measures. A NaN must meet a NaN, an infinity the same infinity. Returns the relative norm.
inline double expect_close(std::span<const float> actual, std::span<const double> reference,
                           std::span<const double> bounds, DType stored, std::string_view name) {
  EXPECT_EQ(actual.size(), reference.size()) << name;
  double difference = 0, norm = 0, worst = 0;
  std::size_t where = 0, wrong = 0;
  for (std::size_t i = 0; i < std::min(actual.size(), reference.size()); ++i) {
    const double r = reference[i], a = actual[i];
    double share = 0;
    if (std::isfinite(r) && std::isfinite(a)) {
      difference += (a - r) * (a - r);
      norm += r * r;
      // Subnormal results may be flushed, but in f16, whose steps below 2^-14 are 2^-24 long.
      const double smallest = stored == DType::f16 ? 0x1p-25 : 0x1p-126;
      share = std::abs(a - r) / (bounds[i] + 2 * storage_error(stored) * std::abs(r) + smallest);
    } else if (!(std::isnan(r) && std::isnan(a)) && r != a) {
      share = std::numeric_limits<double>::infinity();
    }
    wrong += share > 1;
    if (share > worst) {
      worst = share;
      where = i;
    }
  }
  const double relative = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  if (worst > 1) {
    ADD_FAILURE() << name << ": " << wrong << " of " << actual.size()
                  << " elements beyond their bound; worst " << worst << " times, element " << where
                  << " is " << actual[where] << ", reference " << reference[where]
                  << "; relative norm " << relative;
  }
  return relative;
}

/// Expects the same bits, NaNs included. Says how many differ and which is the first.
inline void expect_same_bits(std::span<const float> a, std::span<const float> b,
                             std::string_view name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  std::size_t differ = 0, first = 0;
  for (std::size_t i = a.size(); i-- > 0;) {
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
    ++differ;
    first = i;
  }
  if (differ > 0) {
    ADD_FAILURE() << name << ": " << differ << " of " << a.size() << " differ, first " << first
                  << ": " << a[first] << " and " << b[first];
  }
}

/// Normal numbers, reproducible.
inline std::vector<float> random_values(std::int64_t n, std::uint64_t seed, float scale = 1) {
  core::Rng rng(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) value = scale * rng.normal();
  return values;
}

}  // namespace rose::kernels::gpu
