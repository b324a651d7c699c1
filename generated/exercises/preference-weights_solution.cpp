// An exercise of the chapter "Log-ratios as rewards: preferences, implicit process rewards, distillation".

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
#include "labs/rl/process.h"

namespace rose::labs {
namespace {

// One weight per answer.

/// Sums of log-probabilities of an answer's tokens, under the policy and the reference.
struct Answer {
  double policy, reference;
};

/// Weights of (chosen, rejected) for each pair.
std::vector<std::pair<double, double>> preference_weights(
    std::span<const std::pair<Answer, Answer>> pairs, double beta, double smoothing) {
  std::vector<std::pair<double, double>> weights;
  for (const auto& [chosen, rejected] : pairs) {
    const double h =
        beta * (chosen.policy - chosen.reference - rejected.policy + rejected.reference);
    const double right = 1 / (1 + std::exp(-h));  // the loss believes the label this much
    const double w = beta * (1 - smoothing - right) / static_cast<double>(pairs.size());
    weights.emplace_back(w, -w);
  }
  return weights;
}

// The weights are minus the loss's derivatives.
double loss_of(std::span<const std::pair<Answer, Answer>> pairs, double beta, double smoothing) {
  double sum = 0;
  for (const auto& [w, l] : pairs) {
    const double h = beta * (w.policy - w.reference - l.policy + l.reference);
    sum += (1 - smoothing) * std::log1p(std::exp(-h)) + smoothing * std::log1p(std::exp(h));
  }
  return sum / static_cast<double>(pairs.size());
}

TEST(PreferenceWeights, AreMinusTheDerivatives) {
  std::vector<std::pair<Answer, Answer>> pairs = {{{-10, -11}, {-12, -11.5}}, {{-7, -7}, {-9, -9}}};
  for (const double smoothing : {0.0, 0.1}) {
    const auto weights = preference_weights(pairs, 0.3, smoothing);
    ASSERT_EQ(weights.size(), 2u);
    EXPECT_NEAR(weights[1].first, 0.3 * (0.5 - smoothing) / 2, 1e-12);  // equal: sigma(0) is 1/2
    for (std::size_t i = 0; i < 2; ++i) {
      for (const bool chosen : {true, false}) {
        auto up = pairs, down = pairs;
        (chosen ? up[i].first : up[i].second).policy += 1e-6;
        (chosen ? down[i].first : down[i].second).policy -= 1e-6;
        const double slope = (loss_of(up, 0.3, smoothing) - loss_of(down, 0.3, smoothing)) / 2e-6;
        EXPECT_NEAR(chosen ? weights[i].first : weights[i].second, -slope, 1e-8);
      }
    }
  }
}

}  // namespace
}  // namespace rose::labs
