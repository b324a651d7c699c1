// Tests of the chapter "Fused cross-entropy and the one log-probability".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/kernels/cross_entropy.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/cross_entropy.h"
#include "rose/kernels/logprob.h"

namespace rose::kernels {
namespace {

// Work the example on the CPU, and refuse on the host what does not fit.
TEST(CrossEntropyExample, QuarterAndThreeQuarters) {
  core::ThreadPool pool(1);
  std::vector<float> z{0.0f, std::log(3.0f)}, loss(1), scratch;
  cross_entropy(z, 1, std::vector<std::int32_t>{0}, 1.0f, loss, pool, scratch);
  EXPECT_NEAR(loss[0], 1.386294f, 1e-6f);
  EXPECT_NEAR(z[0], -0.75f, 1e-6f);
  EXPECT_NEAR(z[1], 0.75f, 1e-6f);
}

TEST(CrossEntropyChecks, NamesTheArgument) {
  alignas(16) std::array<std::byte, 256> memory{};
  const auto matrix = [&](std::int64_t rows, std::int64_t cols, DType dtype) {
    return gpu::Matrix{.data = memory.data(), .dtype = dtype, .rows = rows, .cols = cols};
  };
  const auto argument_of = [](auto&& call) {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string();
  };
  const gpu::Matrix z = matrix(2, 8, DType::f32);
  const auto* ids = reinterpret_cast<const std::int32_t*>(memory.data());
  EXPECT_EQ(argument_of(
                [&] { gpu::token_logprob(matrix(2, 8, DType::bf16), ids, nullptr, nullptr, {}); }),
            "logits");
  EXPECT_EQ(argument_of([&] { gpu::cross_entropy(z, nullptr, 1, z, nullptr, nullptr, {}); }),
            "targets");
  EXPECT_EQ(argument_of([&] {
              gpu::cross_entropy(z, ids, 1, matrix(2, 8, DType::bf16), nullptr, nullptr, {});
            }),
            "dlogits");
  EXPECT_NO_THROW(gpu::cross_entropy(matrix(0, 8, DType::f32), ids, 1, matrix(0, 8, DType::bf16),
                                     nullptr, nullptr, {}));
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// One row has one log-probability.
using CrossEntropyGpu = GpuTest;

TEST_F(CrossEntropyGpu, NeitherClusterNorNeighboursNorPlaceShow) {
  for (const std::int64_t v : {1000, 50'304, 151'936}) {
    const std::int64_t rows =
        70;  // more than the few that get clusters of their own for the score alone
    const auto values = random_values(rows * v, 4, 4);
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows), 17);
    const Buffer targets = Buffer::of(std::span<const std::int32_t>(ids));
    const auto* t = targets.as<std::int32_t>();
    const auto z = DeviceMatrix::of(values, rows, v, DType::f32);
    const auto bytes = static_cast<std::size_t>(rows) * sizeof(float);
    const Buffer many(bytes), one(sizeof(float)), losses(bytes), narrow_losses(bytes);
    token_logprob(z.view(), t, many.as<float>(), nullptr, {});
    Matrix last = z.view();
    last.data = static_cast<float*>(last.data) + (rows - 1) * v;
    last.rows = 1;
    token_logprob(last, t, one.as<float>(), nullptr, {});
    EXPECT_EQ(one.values<float>().front(), many.values<float>().back());

    const auto narrow = DeviceMatrix::of(values, rows, v, DType::f32, {.offset = 1});
    const DeviceMatrix apart(rows, v, DType::f32);
    cross_entropy(narrow.view(), t, 0.5f, narrow.view(), narrow_losses.as<float>(), nullptr, {});
    cross_entropy(z.view(), t, 0.5f, apart.view(), losses.as<float>(), nullptr, {});
    cross_entropy(z.view(), t, 0.5f, z.view(), nullptr, nullptr, {});
    expect_same_bits(z.values(), apart.values(), "in place");
    expect_same_bits(narrow.values(), apart.values(), "misaligned");
    expect_same_bits(narrow_losses.values<float>(), losses.values<float>(), "losses");
  }
}

TEST_F(CrossEntropyGpu, MaskedColumnsAndNaN) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values(3 * 300, -inf);
  values[5] = 0.0f, values[299] = 0.0f;   // two columns of row 0, in the first and the last tile
  values[300 + 7] = std::nanf("");        // row 1
  values[600] = 1.0f, values[601] = inf;  // row 2
  const auto z = DeviceMatrix::of(values, 3, 300, DType::f32);
  const std::vector<std::int32_t> ids{5, 7, 0};
  const Buffer targets = Buffer::of(std::span<const std::int32_t>(ids)), out(3 * sizeof(float));
  token_logprob(z.view(), targets.as<std::int32_t>(), out.as<float>(), nullptr, {});
  const auto scores = out.values<float>();
  EXPECT_NEAR(scores[0], -std::log(2.0f), 1e-6f);
  EXPECT_TRUE(std::isnan(scores[1]));
  EXPECT_TRUE(std::isnan(scores[2]));
}

}  // namespace
}  // namespace rose::kernels::gpu
