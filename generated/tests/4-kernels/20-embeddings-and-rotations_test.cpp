// Tests of the chapter "Embeddings and rotations".

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
#include "rose/kernels/embedding_backward.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/embedding.h"
#include "rose/kernels/gpu/rope.h"
#include "rose/kernels/rope.h"

namespace rose::kernels::gpu {
namespace {

// Refuse on the host what does not fit.
TEST(RotationChecks, NamesTheArgument) {
  alignas(16) std::array<std::byte, 256> memory{};
  const auto matrix = [&](std::int64_t rows, std::int64_t cols, DType dtype) {
    return Matrix{.data = memory.data(), .dtype = dtype, .rows = rows, .cols = cols};
  };
  const auto argument_of = [](auto&& call) {
    try {
      call();
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string();
  };
  const auto* table = reinterpret_cast<const float*>(memory.data());
  const auto* ids = reinterpret_cast<const std::int32_t*>(memory.data());
  EXPECT_EQ(argument_of([&] {
              rope(matrix(2, 9, DType::f32), 3, table, table, RopePairing::half, false, {});
            }),
            "head_dim");
  EXPECT_EQ(argument_of([&] {
              rope(matrix(2, 9, DType::f32), 4, table, table, RopePairing::half, false, {});
            }),
            "x");
  EXPECT_EQ(
      argument_of([&] { embedding(ids, matrix(4, 8, DType::f32), matrix(2, 7, DType::f32), {}); }),
      "out");
  EXPECT_EQ(argument_of([&] {
              embedding_backward(ids, matrix(2, 8, DType::f32), matrix(4, 8, DType::bf16), {}, {});
            }),
            "dtable");
  EXPECT_NO_THROW(embedding(nullptr, matrix(4, 8, DType::f32), matrix(0, 8, DType::f32), {}));
}

// The CPU's bits, at every position.
using RotationGpu = GpuTest;

TEST_F(RotationGpu, TableAndTurnEqualTheCpus) {
  core::ThreadPool pool(1);
  const std::vector<std::int32_t> positions{0, 1, 2, 1000, 32'767, 131'071, 1'000'000};
  const std::vector<float> inv_freq = rope_frequencies(128, 1e6f);
  std::vector<float> cos(positions.size() * 64), sin(cos.size());
  kernels::rope_table(positions, inv_freq, 1.0f, cos, sin, pool);
  const Buffer p = Buffer::of(std::span<const std::int32_t>(positions)),
               f = Buffer::of(std::span<const float>(inv_freq));
  const Buffer c(cos.size() * 4), s(cos.size() * 4);
  rope_table(p.as<std::int32_t>(), 7, f.as<float>(), 64, 1.0f, c.as<float>(), s.as<float>(), {});
  synchronize({});
  expect_same_bits(c.values<float>(), cos, "cos");
  expect_same_bits(s.values<float>(), sin, "sin");

  auto values = random_values(7 * 3 * 128, 5);
  const auto x = DeviceMatrix::of(values, 7, 3 * 128, DType::f32);
  rope(x.view(), 128, c.as<float>(), s.as<float>(), RopePairing::half, false, {});
  kernels::rope(values, 7, 3, 128, cos, sin, pool);
  expect_same_bits(x.values(), values, "half");
}

TEST_F(RotationGpu, AnIdThatPointsNowhereGivesNaN) {
  const auto table = DeviceMatrix::of(random_values(4 * 8, 1), 4, 8, DType::bf16);
  const std::vector<std::int32_t> ids{3, 4, -1};
  const Buffer on_device = Buffer::of(std::span<const std::int32_t>(ids));
  const DeviceMatrix out(3, 8, DType::f32);
  embedding(on_device.as<std::int32_t>(), table.view(), out.view(), {});
  const auto rows = out.values();
  EXPECT_FALSE(std::isnan(rows[0]));
  EXPECT_TRUE(std::isnan(rows[8]) && std::isnan(rows[23]));
}

}  // namespace
}  // namespace rose::kernels::gpu
