// Tests of the chapter "The objective".

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

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/kernels/cross_entropy.h"
#include "rose/kernels/weighted_cross_entropy.h"
#include "rose/trainer/objective.h"

namespace rose::trainer {
namespace {

// The mean of means is another objective.
TEST(Objective, TheMeanOfMeansIsAnotherObjective) {
  LossSum many{.loss = 10.0, .weight = 10.0, .tokens = 10},
      few{.loss = 12.0, .weight = 1.0, .tokens = 1};
  LossSum both = many;
  both += few;
  EXPECT_DOUBLE_EQ(both.mean(), 2.0);
  EXPECT_DOUBLE_EQ((many.mean() + few.mean()) / 2, 6.5);
  EXPECT_EQ(both.tokens, 11);
  EXPECT_EQ(LossSum().mean(), 0.0);  // a step without tokens has no loss, and not 0/0
}

// A batch that does not fit is refused by name.
struct SmallBatch {
  std::vector<std::int32_t> ids{1, 2, 3, 4, 5}, positions{0, 1, 2, 0, 1}, offsets{0, 3, 5},
      targets{2, 3, -1, 5, -1};
  std::vector<float> weights{1, 0.5f, 7, 2, 9};
  MicroBatch view() const { return {ids, positions, offsets, targets, weights}; }
};

std::string refusal(const SmallBatch& b, std::int64_t model_positions = 0) {
  try {
    check(b.view(), 6, model_positions);
  } catch (const core::Error& error) {
    return error.argument() + ": " + error.message();
  }
  return "";
}

TEST(Objective, WeightsOfTargetsAreAddedUp) {
  const SmallBatch b;
  EXPECT_DOUBLE_EQ(total_weight(b.view()), 3.5);
  MicroBatch plain = b.view();
  plain.weights = {};
  EXPECT_DOUBLE_EQ(total_weight(plain), 3.0);
}

TEST(Objective, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(refusal({}), "");
  SmallBatch beyond, negative, rows, positions, weight;
  beyond.targets[1] = 6, negative.ids[0] = -1, rows.offsets[2] = 4, positions.positions[3] = 3;
  weight.weights[1] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(refusal(beyond),
            "micro-batch: token 1 of the batch is 6, and the vocabulary has 6 entries");
  EXPECT_EQ(refusal(negative),
            "micro-batch: token 0 of the batch is -1, and the vocabulary has 6 entries");
  EXPECT_EQ(refusal(rows), "row_offsets: they must run from 0 to 5");
  EXPECT_EQ(refusal(positions), "positions: those of sequence 1 are not consecutive at token 4");
  EXPECT_EQ(refusal(weight), "weights: the weight of token 1 is not finite");
  EXPECT_EQ(refusal({}, 2), "positions: token 2 is at position 2, the model has 2 positions");
}

}  // namespace
}  // namespace rose::trainer

namespace rose::kernels {
namespace {

// The objective's gradient, by hand.
TEST(WeightedCrossEntropy, AgreesWithTheHand) {
  core::ThreadPool pool(1);
  std::vector<float> logits;
  for (int row = 0; row < 3; ++row) {
    for (const float x : {1.0f, 2.0f, 5.0f}) logits.push_back(std::log(x));
  }
  const std::vector<float> plain = {0.125f, -0.75f, 0.625f};
  std::vector<float> logprobs(3), lse(3), no_z = logits;
  const std::vector<std::int32_t> targets = {1, 1, 1};
  const std::vector<float> scales = {1.0f, 2.0f, 0.0f};
  weighted_cross_entropy(no_z, 3, targets, scales, 0.0f, logprobs, lse, pool);
  EXPECT_NEAR(logprobs[0], -std::log(4.0), 1e-6);
  EXPECT_NEAR(lse[1], std::log(8.0), 1e-6);
  weighted_cross_entropy(logits, 3, targets, scales, 0.1f, logprobs, lse, pool);
  const std::vector<double> pulled = {0.17699, -0.64603, 0.88493};
  for (std::size_t v = 0; v < 3; ++v) {
    EXPECT_NEAR(no_z[v], plain[v], 1e-6);
    EXPECT_NEAR(no_z[3 + v], 2 * plain[v], 1e-6);
    EXPECT_EQ(no_z[6 + v], 0.0f);
    EXPECT_NEAR(logits[v], pulled[v], 1e-5);
  }
  EXPECT_NEAR(logits[0] + logits[1] + logits[2], 0.2 * std::log(8.0), 1e-6);
}

// The gradient agrees with autograd, and with the plain kernel's bits.
TEST(WeightedCrossEntropy, AgreesWithAutograd) {
  core::ThreadPool pool(2);
  core::Rng rng(4);
  constexpr std::int64_t rows = 37, columns = 301;
  std::vector<float> logits(rows * columns), scales(rows), logprobs(rows), lse(rows);
  std::vector<std::int32_t> targets(rows);
  std::vector<std::int64_t> wide;
  for (float& x : logits) x = 3 * rng.normal() + 2;
  for (std::size_t r = 0; r < rows; ++r) {
    scales[r] = rng.normal(), targets[r] = static_cast<std::int32_t>(rng.below(columns));
    wide.push_back(targets[r]);
  }
  const auto x = at::from_blob(logits.data(), {rows, columns}, at::kFloat)
                     .to(at::kDouble)
                     .set_requires_grad(true);
  const auto w = at::from_blob(scales.data(), {rows}, at::kFloat).to(at::kDouble);
  const at::Tensor top = x.logsumexp(1);
  const at::Tensor chosen = x.gather(1, at::tensor(wide).unsqueeze(1)).squeeze(1);
  const at::Tensor loss = (w * (top - chosen + 0.01 * top.square())).sum();
  const at::Tensor want = torch::autograd::grad({loss}, {x})[0].contiguous();
  weighted_cross_entropy(logits, rows, targets, scales, 0.01f, logprobs, lse, pool);
  // Each entry is a product of four roundings and an exponential of a rounded difference of size 10 at most.
  for (std::size_t i = 0; i < logits.size(); ++i)
    ASSERT_NEAR(logits[i], want.const_data_ptr<double>()[i],
                1e-5 * (1e-3 + std::abs(scales[i / columns])));
}

TEST(WeightedCrossEntropy, WithEqualWeightsHasTheBitsOfThePlainKernel) {
  core::ThreadPool pool(2);
  core::Rng rng(5);
  constexpr std::int64_t rows = 20, columns = 130;
  std::vector<float> ours(rows * columns), scales(rows, 1.0f / 20), logprobs(rows), lse(rows),
      losses(rows), scratch;
  std::vector<std::int32_t> targets(rows);
  for (float& x : ours) x = rng.normal();
  for (std::int32_t& t : targets) t = static_cast<std::int32_t>(rng.below(columns));
  std::vector<float> plain = ours;
  weighted_cross_entropy(ours, rows, targets, scales, 0.0f, logprobs, lse, pool);
  cross_entropy(plain, rows, targets, 1.0f / 20, losses, pool, scratch);
  EXPECT_EQ(ours, plain);
  for (std::size_t r = 0; r < rows; ++r) EXPECT_EQ(logprobs[r], -losses[r]);
}

}  // namespace
}  // namespace rose::kernels

namespace rose::trainer {
namespace {

// A preference is two weights.
TEST(Objective, APreferenceIsTwoWeights) {
  const double beta = 0.1;
  const auto loss = [&](double l1, double l2) {
    return -std::log(1 / (1 + std::exp(-beta * (-l1 + l2))));
  };
  const double sigma = 1 / (1 + std::exp(-0.3)), h = 1e-5;
  EXPECT_NEAR(sigma, 0.5744, 1e-4);
  EXPECT_NEAR(beta * (1 - sigma), 0.0426, 1e-4);
  EXPECT_NEAR((loss(2 + h, 5) - loss(2 - h, 5)) / (2 * h), beta * (1 - sigma), 1e-8);
  EXPECT_NEAR((loss(2, 5 + h) - loss(2, 5 - h)) / (2 * h), -beta * (1 - sigma), 1e-8);
}

}  // namespace
}  // namespace rose::trainer
