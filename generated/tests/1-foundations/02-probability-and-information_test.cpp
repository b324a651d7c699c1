// Tests of the chapter "Probability, information and estimation".

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

#include "labs/evidence/values.h"
#include "labs/information/information.h"
#include "rose/core/rng.h"

namespace rose::core {
namespace {

// Philox gives the published words.
using Words = std::array<std::uint32_t, 4>;

TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Flipping one bit of the counter flips half of the output.
TEST(Philox, ScramblesNeighbours) {
  std::int64_t flipped = 0, trials = 0;
  for (std::uint32_t c = 0; c < 200; ++c) {
    const Words before = philox4x32({c, 0, 0, 0}, {1, 2});
    for (unsigned bit = 0; bit < 128; ++bit) {
      Words counter{c, 0, 0, 0};
      counter[bit / 32] ^= 1u << bit % 32;
      const Words after = philox4x32(counter, {1, 2});
      for (std::size_t i = 0; i < 4; ++i) flipped += std::popcount(before[i] ^ after[i]);
      trials += 128;
    }
  }
  EXPECT_NEAR(static_cast<double>(flipped) / static_cast<double>(trials), 0.5,
              0.0015);  // 5 deviations
}

// Positions are free, bounded numbers exactly uniform, permutations fair.
TEST(Rng, AnyPositionIsFree) {
  Rng all(7, 3);
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(Rng(7, 3, i).next(), all.next());
    ASSERT_EQ(all.position(), i + 1);
  }
  EXPECT_NE(Rng(7, 4).next64(), Rng(7, 3).next64());
  EXPECT_NE(Rng(8, 3).next64(), Rng(7, 3).next64());
  Rng far(1, 1, std::uint64_t{1} << 40);
  EXPECT_EQ(far.next(), philox4x32({0, 1u << 6, 1, 0}, {1, 0})[0]);  // 2^40 / 4 = 2^38
}

TEST(Rng, RejectionIsExactOnEightBits) {
  for (unsigned n = 1; n < 256; ++n) {
    std::vector<unsigned> accepted(n, 0);
    for (unsigned word = 0; word < 256; ++word) {
      if ((word * n) % 256 >= 256 % n) ++accepted[word * n / 256];
    }
    ASSERT_THAT(accepted, testing::Each(256 / n));
  }
}

TEST(Rng, PermutationsAreFair) {
  std::map<std::array<int, 4>, int> count;
  Rng rng(5);
  for (int trial = 0; trial < 24'000; ++trial) {
    std::array<int, 4> items{0, 1, 2, 3};
    shuffle(std::span<int>(items), rng);
    ++count[items];
  }
  ASSERT_EQ(count.size(), 24u);
  double chi2 = 0;  // 23 degrees of freedom: above 52 once in 2000 seeds
  for (const auto& [items, times] : count) chi2 += (times - 1000.0) * (times - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 52);
}

TEST(Rng, NormalsHaveTheNormalsMomentsAndTails) {
  Rng rng(9);
  constexpr int n = 1'000'000;
  double sum = 0, squares = 0, fourth = 0;
  int beyond_two = 0;
  for (int i = 0; i < n; ++i) {
    const double x = rng.normal();
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    beyond_two += std::fabs(x) > 2;
  }
  EXPECT_EQ(rng.position(), 4u * n);
  EXPECT_NEAR(sum / n, 0, 0.005);  // 5 standard errors each
  EXPECT_NEAR(squares / n, 1, 0.0071);
  EXPECT_NEAR(fourth / n, 3, 0.049);
  EXPECT_NEAR(beyond_two / double{n}, std::erfc(std::sqrt(2.0)), 0.00105);
}

}  // namespace
}  // namespace rose::core

namespace rose::labs {
namespace {

// A 95 % interval covers the truth in 95 of 100 repetitions.
TEST(Running, AgreesWithTheHandAndCoversTheTruth) {
  Running by_hand;
  for (const double x : {2.0, 4.0, 9.0}) by_hand.add(x);
  EXPECT_DOUBLE_EQ(by_hand.mean(), 5);
  EXPECT_DOUBLE_EQ(by_hand.variance(), 13);
  EXPECT_NEAR(by_hand.standard_error(), 2.08, 0.005);

  core::Rng rng(1);
  int covered = 0;
  constexpr int repetitions = 4000;
  for (int r = 0; r < repetitions; ++r) {
    Running sample;
    for (int i = 0; i < 200; ++i)
      sample.add(-std::log(1 - rng.uniform64()));  // exponential, mean 1
    covered += std::fabs(sample.mean() - 1) < 1.96 * sample.standard_error();
  }
  const double share = 100.0 * covered / repetitions;
  EXPECT_NEAR(share, 95, 2);
  write_value("interval-coverage", "share", share);
}

// Nats, perplexity and bits per byte agree with the hand.
TEST(Information, AgreesWithTheHand) {
  const double loss = (std::log(4) + std::log(16)) / 2;
  EXPECT_NEAR(loss, 2.08, 0.005);
  EXPECT_DOUBLE_EQ(std::exp(loss), 8);
  EXPECT_DOUBLE_EQ(bits_per_byte(loss, 2, 8), 0.75);
  EXPECT_NEAR(std::exp(1.5 * std::numbers::ln2), 2.83, 0.002);
  EXPECT_DOUBLE_EQ(bits_per_byte(1.5 * std::numbers::ln2, 4, 8), 0.75);
  EXPECT_NEAR(std::log(49152), 10.80, 0.003);
  core::Rng rng(2);  // logits with a standard deviation of s start s * s / 2 above that
  std::vector<double> logits(49152);
  for (double& z : logits) z = 1.79 * rng.normal();
  EXPECT_NEAR(log_sum_exp(logits), 12.4, 0.05);
}

TEST(Information, KlIsTheGapAndNeverNegative) {
  core::Rng rng(3);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> a(5), b(5);
    for (double& x : a) x = 2 * rng.normal();
    for (double& x : b) x = 2 * rng.normal();
    const auto p = softmax(a), q = softmax(b);
    ASSERT_NEAR(kl(p, q), cross_entropy(p, q) - entropy(p), 1e-12);
    ASSERT_GE(kl(p, q), 0);
    ASSERT_NEAR(kl(p, p), 0, 1e-15);
  }
  EXPECT_EQ(kl(std::array{0.0, 1.0}, std::array{0.5, 0.5}), std::numbers::ln2);  // 0 ln 0 is 0
  EXPECT_EQ(kl(std::array{0.5, 0.5}, std::array{0.0, 1.0}),
            std::numeric_limits<double>::infinity());
}

// Log-sum-exp survives large logits, and its gradient is the softmax.
TEST(LogSumExp, SurvivesWhatTheFormulaDoesNot) {
  const std::array z = {1000.0, 1000.0, -1e9};
  EXPECT_TRUE(std::isinf(std::log(std::exp(z[0]) + std::exp(z[1]) + std::exp(z[2]))));
  EXPECT_DOUBLE_EQ(log_sum_exp(z), 1000 + std::numbers::ln2);
  EXPECT_DOUBLE_EQ(log_sum_exp(std::array{-1001.0, -1000.0}), -1000 + std::log1p(std::exp(-1.0)));
  EXPECT_EQ(log_sum_exp({}), -std::numeric_limits<double>::infinity());
  const float tiny = std::exp(-200.0f);
  EXPECT_TRUE(std::isinf(std::log(tiny)));  // two steps lose it
}

TEST(LogSumExp, HasTheSoftmaxAsItsGradient) {
  std::array z = {0.3, -1.2, 2.0, 0.7};
  const auto q = softmax(z);
  for (std::size_t i = 0; i < z.size(); ++i) {
    constexpr double h = 1e-5;
    auto up = z, down = z;
    up[i] += h;
    down[i] -= h;
    EXPECT_NEAR((log_sum_exp(up) - log_sum_exp(down)) / (2 * h), q[i], 1e-9);
  }
}

// The estimators have the derived means and variances.
TEST(KlEstimators, HaveTheDerivedMeansAndVariances) {
  core::Rng rng(4);
  for (const double mu : {0.1, 0.5, 1.0}) {
    const double m2 = mu * mu;
    std::array<Running, 3> k;
    for (int i = 0; i < 1'000'000; ++i) {
      const double x = rng.normal();
      const KlSample s = kl_sample(-x * x / 2, -(x - mu) * (x - mu) / 2);
      k[0].add(s.k1);
      k[1].add(s.k2);
      k[2].add(s.k3);
    }
    const std::array mean = {m2 / 2, m2 / 2 + m2 * m2 / 8, m2 / 2};
    const std::array variance = {m2, m2 * m2 / 2 + m2 * m2 * m2 / 4, std::exp(m2) - 1 - m2};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(k[i].mean(), mean[i], 5 * k[i].standard_error()) << "k" << i + 1 << " at " << mu;
      EXPECT_NEAR(k[i].variance() / variance[i], 1, mu < 1 ? 0.02 : 0.25)
          << "k" << i + 1 << " at " << mu;
    }
  }
  EXPECT_NEAR(0.01 / (std::exp(0.01) - 1.01), 200, 1);       // how many more samples k1 needs
  EXPECT_NEAR(std::exp(1.2564) - 1 - 1.2564, 1.2564, 1e-3);  // where the two are equally bad
}

// The gradients of the estimators are not the estimators of the gradient.
TEST(KlEstimators, GradientsAreThoseOfOtherThings) {
  const std::array z = {0.5, -0.3, 1.1, 0.0};
  const auto q = softmax(std::array{0.1, 0.4, -0.6, 0.2});
  const auto p = softmax(z);
  const auto difference = [&](auto&& f, std::size_t i) {  // d f(p) / d z_i
    auto up = z, down = z;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    return (f(softmax(up)) - f(softmax(down))) / 2e-5;
  };
  using Distribution = std::vector<double>;
  for (std::size_t i = 0; i < 4; ++i) {
    std::array<double, 3> gradient{};  // sum over x of p(x) * dk(x)/dz_i: x drawn from a fixed p
    for (std::size_t x = 0; x < 4; ++x) {
      const auto sample = [&](const Distribution& s) {
        return kl_sample(std::log(s[x]), std::log(q[x]));
      };
      gradient[0] += p[x] * difference([&](const Distribution& s) { return sample(s).k1; }, i);
      gradient[1] += p[x] * difference([&](const Distribution& s) { return sample(s).k2; }, i);
      gradient[2] += p[x] * difference([&](const Distribution& s) { return sample(s).k3; }, i);
    }
    EXPECT_NEAR(gradient[0], 0, 1e-9);
    EXPECT_NEAR(gradient[1], difference([&](const Distribution& s) { return kl(s, q); }, i), 1e-8);
    EXPECT_NEAR(gradient[2], difference([&](const Distribution& s) { return kl(q, s); }, i), 1e-8);
  }
}

// Sequence weights explode as derived.
TEST(Importance, RepairsTheMeanUntilItExplodes) {
  core::Rng rng(6);
  constexpr double step = 0.1;  // token ratios: N(step, 1) over N(0, 1)
  const double chi2 = std::exp(step * step) - 1;
  std::map<int, double> share;
  for (const int length : {1, 10, 100, 1000}) {
    std::vector<double> log_weights;
    Running mean;
    for (int i = 0; i < 20'000; ++i) {
      const double log_w = step * std::sqrt(length) * rng.normal() - length * step * step / 2;
      log_weights.push_back(log_w);
      mean.add(std::exp(log_w));
    }
    share[length] = effective_sample_size(log_weights) / 20'000;
    if (length <= 100) {
      EXPECT_NEAR(mean.mean(), 1, 5 * mean.standard_error());
      EXPECT_NEAR(share[length] * std::pow(1 + chi2, length), 1, 0.2) << length;
    }
  }
  EXPECT_LT(share[1000], 0.01);
  EXPECT_NEAR(std::pow(1.01, 1000), 20959, 1);
  EXPECT_NEAR(std::log(10) / std::log(1.001), 2304, 1);
  EXPECT_DOUBLE_EQ(effective_sample_size(std::array{-900.0, -900.0}), 2);
  write_value("weights-explode", "share-100", 100 * share[100]);
  write_value("weights-explode", "share-1000", 100 * share[1000]);
}

}  // namespace
}  // namespace rose::labs
