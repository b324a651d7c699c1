// The two products of a linear layer's backward pass.

#include "rose/kernels/linear_backward.h"

#include <fmt/format.h>

#include "rose/core/error.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/linear_backward.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "rose/kernels/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// c [rows, columns] (+)= a [rows, depth] b [depth, columns].
void multiply(const float* a, std::int64_t a_row, std::int64_t a_column, const float* b,
              std::int64_t rows, std::int64_t depth, std::int64_t columns, float* c, bool add,
              core::ThreadPool& pool, std::vector<float>& scratch) {
  const auto size = static_cast<std::size_t>(packed_size(depth, columns)) + 16;
  if (scratch.size() < size) scratch.resize(size);
  // Panels begin on a cache line: vectors that straddle two lines take two loads.
  float* packed = scratch.data();
  while (reinterpret_cast<std::uintptr_t>(packed) % 64 != 0) ++packed;
  pool.for_range((columns + kPanel - 1) / kPanel, 1, [&](std::int64_t begin, std::int64_t end) {
    pack_panels({b, columns, 1}, depth, columns, begin, end, packed);
  });
  pool.for_range((rows + kTileRows - 1) / kTileRows, 1, [&](std::int64_t begin, std::int64_t end) {
    multiply_rows({a, a_row, a_column}, packed, rows, depth, columns, c, columns, add, begin, end);
  });
}

// db [n] += the sum of the rows of dy [m, n], each column an ascending chain from zero.
void column_sums(const float* dy, std::int64_t m, std::int64_t n, float* db,
                 core::ThreadPool& pool) {
  pool.for_range(n, 64, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t j = begin; j < end; j += width) {
      Vec sum = set(0.0f);
      for (std::int64_t i = 0; i < m; ++i) sum = hn::Add(sum, load_some(dy + i * n + j, end - j));
      store_some(hn::Add(load_some(db + j, end - j), sum), db + j, end - j);
    }
  });
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::kernels {
namespace {

HWY_EXPORT(multiply);
HWY_EXPORT(column_sums);

// Say which array does not fit.
void expect(std::size_t have, std::int64_t want, const char* what) {
  if (have != static_cast<std::size_t>(want)) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} has {} elements, expected {}", what, have, want))
        .in("linear_backward");
  }
}

}  // namespace

// Choose the operands and their strides.
void linear_backward_input(std::span<const float> dy, std::int64_t m, const MatrixView& w,
                           std::span<float> dx, Into into, core::ThreadPool& pool,
                           std::vector<float>& scratch) {
  if (w.dtype != DType::f32) {
    throw core::Error(core::Code::unsupported, "weights to be trained must be fp32")
        .in("linear_backward");
  }
  expect(dy.size(), m * w.rows, "dy");
  expect(dx.size(), m * w.cols, "dx");
  HWY_DYNAMIC_DISPATCH(multiply)
  (dy.data(), w.rows, 1, static_cast<const float*>(w.data), m, w.rows, w.cols, dx.data(),
   into == Into::add, pool, scratch);
}

void linear_backward_weight(std::span<const float> x, std::span<const float> dy, std::int64_t m,
                            std::span<float> dw, std::span<float> db, core::ThreadPool& pool,
                            std::vector<float>& scratch) {
  if (m == 0) return;
  const std::int64_t k = static_cast<std::int64_t>(x.size()) / m,
                     n = static_cast<std::int64_t>(dy.size()) / m;
  expect(x.size(), m * k, "x");
  expect(dy.size(), m * n, "dy");
  expect(dw.size(), n * k, "dw");
  if (!db.empty()) expect(db.size(), n, "db");
  HWY_DYNAMIC_DISPATCH(multiply)
  (dy.data(), 1, n, x.data(), n, m, k, dw.data(), true, pool, scratch);
  if (!db.empty()) HWY_DYNAMIC_DISPATCH(column_sums)(dy.data(), m, n, db.data(), pool);
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
