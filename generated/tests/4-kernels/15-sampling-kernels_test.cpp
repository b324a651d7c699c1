// Tests of the chapter "Sampling kernels".

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
#include "rose/core/rng.h"
#include "rose/kernels/gpu/buffer.h"
#include "rose/kernels/gpu/sampling.h"
#include "rose/kernels/sampling.h"
#include "rose/model/sample.h"

namespace rose::kernels {
namespace {

// Work the example, and count twenty thousand draws.
std::vector<double> shares(const std::vector<float>& logits, SamplingParams params, int draws) {
  std::vector<std::pair<float, std::int32_t>> scratch;
  std::vector<double> share(logits.size());
  for (int i = 0; i < draws; ++i) {
    params.position = static_cast<std::uint64_t>(i);
    share[static_cast<std::size_t>(sample(logits, params, scratch).token)] += 1.0 / draws;
  }
  return share;
}

TEST(SamplingKernel, KeepsAndDrawsAsSpecified) {
  const std::vector<float> z{std::log(8.0f), std::log(4.0f), std::log(2.0f), 0.0f, 0.0f};
  constexpr int draws = 20'000;
  const auto expect = [&](SamplingParams params, const std::vector<double>& expected) {
    params.temperature = 1.0f;
    const auto share = shares(z, params, draws);
    for (std::size_t v = 0; v < z.size(); ++v) {
      const double sigma = std::sqrt(expected[v] * (1 - expected[v]) / draws);
      EXPECT_NEAR(share[v], expected[v], 5 * sigma) << v;
    }
  };
  expect({}, {1. / 2, 1. / 4, 1. / 8, 1. / 16, 1. / 16});
  expect({.top_p = 0.7f}, {2. / 3, 1. / 3, 0, 0, 0});
  expect({.top_k = 4}, {8. / 15, 4. / 15, 2. / 15, 1. / 15, 0});
  expect({.min_p = 0.2f}, {4. / 7, 2. / 7, 1. / 7, 0, 0});
  expect({.top_k = 3, .top_p = 0.9f}, {4. / 7, 2. / 7, 1. / 7, 0, 0});

  std::vector<std::pair<float, std::int32_t>> scratch;
  const Choice first = sample(z, {.temperature = 1.0f, .top_p = 0.7f, .seed = 3}, scratch);
  EXPECT_NEAR(first.logprob, std::log(first.token == 0 ? 2. / 3 : 1. / 3), 1e-5);
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3}, {}, scratch).token, 1);
  EXPECT_EQ(sample(std::vector<float>{1, std::nanf("")}, {}, scratch).token, -1);
}

// Adjust four tokens, each in its own way.
TEST(SamplingKernel, AdjustsInOrder) {
  std::vector<float> z{2, -2, 1, 5};
  const std::vector<std::pair<std::int32_t, float>> bias{{2, 3.0f}, {9, 1.0f}};
  const std::vector<std::pair<std::int32_t, std::int32_t>> context{{0, 0}, {1, 2}, {-1, 1}};
  const std::vector<std::uint32_t> mask{0b0111};
  adjust_logits(z, {.bias = bias,
                    .mask = mask,
                    .context = context,
                    .repetition = 2.0f,
                    .frequency = 0.5f,
                    .presence = 0.25f});
  EXPECT_EQ(z[0], 1.0f);                      // in the prompt only: 2 / 2
  EXPECT_EQ(z[1], -4.0f - 2 * 0.5f - 0.25f);  // generated twice
  EXPECT_EQ(z[2], 4.0f);
  EXPECT_EQ(z[3], -std::numeric_limits<float>::infinity());
  EXPECT_THROW(validate({.top_p = 0.0f}), core::Error);
  EXPECT_THROW(validate({.temperature = -1.0f}), core::Error);
}

TEST(SamplingKernel, ListsTheLargest) {
  std::vector<std::int32_t> ids(6);
  std::vector<float> scores(6);
  top_logprobs(std::vector<float>{1, 4, 4, 2}, 5.0f, ids, scores);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 2, 3, 0, -1, -1}));
  EXPECT_EQ(scores[0], -1.0f);
  EXPECT_EQ(scores[3], -4.0f);
  EXPECT_EQ(scores[5], -std::numeric_limits<float>::infinity());
  top_logprobs(std::vector<float>{1, std::nanf(""), 0}, 0.0f, ids, scores);
  EXPECT_EQ(ids, std::vector<std::int32_t>(6, -1));
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// A row's choice does not know its neighbours, and ties are cut by id.
using SamplingGpu = GpuTest;

TEST_F(SamplingGpu, AloneInABatchAndAmongEquals) {
  constexpr std::int64_t rows = 9, v = 50'257;
  auto values = random_values(rows * v, 8, 3);
  std::fill_n(values.begin(), v, 1.0f);  // row 0: all equal
  const auto z = DeviceMatrix::of(values, rows, v, DType::f32);
  std::vector<SamplingParams> params(
      rows, {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 5, .position = 77});
  params[0].top_p = 1.0f;
  params[1].top_k = 0;
  params[2].temperature = 0.0f;
  const Buffer p = Buffer::of(std::span<const SamplingParams>(params)), many(rows * 4), one(4);
  sample(z.view(), p.as<SamplingParams>(), many.as<std::int32_t>(), nullptr, {});
  const auto chosen = many.values<std::int32_t>();
  EXPECT_LT(chosen[0], 40);
  for (std::int64_t r = 0; r < rows; ++r) {
    Matrix row = z.view();
    row.data = static_cast<float*>(row.data) + r * v;
    row.rows = 1;
    sample(row, p.as<SamplingParams>() + r, one.as<std::int32_t>(), nullptr, {});
    EXPECT_EQ(one.values<std::int32_t>()[0], chosen[static_cast<std::size_t>(r)]) << r;
  }
}

TEST_F(SamplingGpu, TopLogprobsInOrder) {
  const std::vector<float> values{1, 4, 4, 2, std::nanf(""), 0, 0, 0};
  const auto z = DeviceMatrix::of(values, 2, 4, DType::f32);
  const std::vector<float> lse{5, 0};
  const Buffer sums = Buffer::of(std::span<const float>(lse)), ids(2 * 6 * 4), scores(2 * 6 * 4);
  top_logprobs(z.view(), sums.as<float>(), 6, ids.as<std::int32_t>(), scores.as<float>(), {});
  const auto i = ids.values<std::int32_t>();
  EXPECT_EQ(i, (std::vector<std::int32_t>{1, 2, 3, 0, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(scores.values<float>()[0], -1.0f);
}

}  // namespace
}  // namespace rose::kernels::gpu
