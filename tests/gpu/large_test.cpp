// Matrices of more than 2^31 elements: an index that was computed in 32 bits would wrap. The last rows of a large call must have the
// bits of a call on these rows alone; what was not written is poison. A device with too little free memory skips a case.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/gpu/elementwise.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/norm.h"
#include "rose/kernels/gpu/softmax.h"

namespace rose::kernels::gpu {
namespace {

constexpr std::int64_t kLast = 3;  // rows that are compared

/// A contiguous matrix in device memory.
struct Large {
  Buffer buffer;
  Matrix all;

  Large(std::int64_t rows, std::int64_t cols, DType dtype)
      : buffer(static_cast<std::size_t>(rows * cols) * element_bytes(dtype)),
        all{.data = buffer.data(), .dtype = dtype, .rows = rows, .cols = cols} {}

  Large& random(std::uint32_t seed) {
    fill_random(buffer, all.dtype, seed);
    return *this;
  }
  Matrix last() const {
    Matrix m = all;
    m.rows = kLast;
    m.data = buffer.as<std::byte>() +
             static_cast<std::size_t>((all.rows - kLast) * all.cols) * element_bytes(all.dtype);
    return m;
  }
};

std::vector<float> values(const Matrix& view) {
  const DeviceMatrix copy(view.rows, view.cols, view.dtype);
  cast(view, copy.view(), {});
  return copy.values();
}

/// call(large) on everything, call(small) on the last rows: the same bits in `out`.
void expect_last_rows(std::string_view name, const Large& out,
                      const std::function<void(bool large, const Matrix& out)>& call) {
  ASSERT_GT(out.all.rows * out.all.cols, std::int64_t{1} << 31) << name;
  const_cast<Large&>(out).buffer.poison();
  call(true, out.all);
  const DeviceMatrix alone(kLast, out.all.cols, out.all.dtype);
  call(false, alone.view());
  expect_same_bits(values(out.last()), alone.values(), name);
}

/// Skips, in place of failing, where the device has too little memory.
void where_it_fits(const std::function<void()>& test) {
  try {
    test();
  } catch (const core::Error& error) {
    if (error.code() != core::Code::resource_exhausted) throw;
    GTEST_SKIP() << "too little device memory: " << error.what();
  }
}

using LargeGpu = GpuTest;

TEST_F(LargeGpu, Elementwise) {
  where_it_fits([] {
    constexpr std::int64_t rows = 66'000, cols = 33'000;
    const Large a = std::move(Large(rows, cols, DType::bf16).random(1)),
                b = std::move(Large(rows, cols, DType::bf16).random(2)),
                out(rows, cols, DType::bf16);
    expect_last_rows("silu_multiply", out, [&](bool large, const Matrix& to) {
      silu_multiply(large ? a.all : a.last(), large ? b.all : b.last(), to, {});
    });
    expect_last_rows("silu", out,
                     [&](bool large, const Matrix& to) { silu(large ? a.all : a.last(), to, {}); });
  });
}

TEST_F(LargeGpu, Rows) {
  where_it_fits([] {
    constexpr std::int64_t rows = 530'000, cols = 4096;
    const Large x = std::move(Large(rows, cols, DType::bf16).random(1)),
                weight = std::move(Large(kLast, cols, DType::bf16).random(2)),
                y(rows, cols, DType::bf16);
    Matrix w = weight.all;
    w.rows = 1;
    expect_last_rows("softmax", y, [&](bool large, const Matrix& to) {
      softmax(large ? x.all : x.last(), to, {});
    });
    expect_last_rows("rmsnorm", y, [&](bool large, const Matrix& to) {
      rmsnorm(large ? x.all : x.last(), w, 1e-5f, to, nullptr, {});
    });
  });
}

TEST_F(LargeGpu, CrossEntropy) {
  where_it_fits([] {
    constexpr std::int64_t rows = 14'400, cols = 151'936;
    const Large z = std::move(Large(rows, cols, DType::f32).random(1)),
                gradient(rows, cols, DType::bf16);
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows), 17);
    const Buffer targets = Buffer::of(std::span<const std::int32_t>(ids));
    expect_last_rows("cross_entropy", gradient, [&](bool large, const Matrix& to) {
      cross_entropy(large ? z.all : z.last(), targets.as<std::int32_t>(), 1.0f, to, nullptr,
                    nullptr, {});
    });
  });
}

TEST_F(LargeGpu, Linear) {
  where_it_fits([] {
    constexpr std::int64_t rows = 17'000, outputs = 151'936, k = 64;
    const Large x = std::move(Large(rows, k, DType::bf16).random(1)),
                w = std::move(Large(outputs, k, DType::bf16).random(2)),
                y(rows, outputs, DType::bf16);
    expect_last_rows("linear", y, [&](bool large, const Matrix& to) {
      const LinearPlan plan = plan_linear({.m = to.rows, .n = outputs, .k = k});
      const Buffer workspace(plan.workspace_bytes);
      linear(plan, {.x = large ? x.all : x.last(), .w = w.all, .y = to}, workspace.workspace(), {});
      synchronize({});
    });
  });
}

TEST_F(LargeGpu, Embedding) {
  where_it_fits([] {
    constexpr std::int64_t rows = 530'000, cols = 4096;
    const Large table = std::move(Large(rows, cols, DType::bf16).random(1)),
                out(rows, cols, DType::bf16);
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < rows; ++i) ids.push_back(static_cast<std::int32_t>(rows - 1 - i));
    const Buffer all = Buffer::of(std::span<const std::int32_t>(ids));
    expect_last_rows("embedding", out, [&](bool large, const Matrix& to) {
      embedding(all.as<std::int32_t>() + (large ? 0 : rows - kLast), table.all, to, {});
    });
    // The first token's row is the table's last.
    Matrix first = out.all;
    first.rows = 1;
    Matrix end = table.last();
    end.data = static_cast<std::byte*>(end.data) + 2 * (kLast - 1) * cols;
    end.rows = 1;
    expect_same_bits(values(first), values(end), "the table's last row");
  });
}

}  // namespace
}  // namespace rose::kernels::gpu
