// Tests of the chapter "History: where the pieces come from".

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
#include "rose/core/rng.h"

namespace rose::labs {
namespace {

// Sutton's random walk: guesses from guesses are better guesses.
struct Estimates {
  std::array<double, 5> outcomes{}, differences{};
};

Estimates estimate(core::Rng& rng, int walks) {
  std::array<std::array<double, 3>, 5>
      next{};  // visits that went left, right, and right off the end
  std::array<double, 5> visits{}, wins{};
  for (int w = 0; w < walks; ++w) {
    std::vector<int> path;
    int at = 2;
    while (at >= 0 && at < 5) {
      path.push_back(at);
      at += rng.uniform() < 0.5f ? -1 : 1;
    }
    for (std::size_t i = 0; i < path.size(); ++i) {
      const auto here = static_cast<std::size_t>(path[i]);
      visits[here] += 1;
      wins[here] += at == 5 ? 1 : 0;
      const int to = i + 1 < path.size() ? path[i + 1] : at;
      next[here][to < path[i] ? 0 : to == 5 ? 2 : 1] += 1;
    }
  }
  Estimates e;
  for (std::size_t s = 0; s < 5; ++s) e.outcomes[s] = visits[s] > 0 ? wins[s] / visits[s] : 0.5;
  e.differences.fill(0.5);
  for (int sweep = 0; sweep < 200; ++sweep) {
    for (std::size_t s = 0; s < 5; ++s) {
      if (visits[s] == 0) continue;
      const double left = s > 0 ? e.differences[s - 1] : 0;
      const double right = s < 4 ? e.differences[s + 1] : 0;
      e.differences[s] = (next[s][0] * left + next[s][1] * right + next[s][2]) / visits[s];
    }
  }
  return e;
}

TEST(RandomWalk, DifferencesUseTheWalksBetter) {
  core::Rng rng(1988);
  for (const int walks : {5, 20, 80}) {
    double outcomes = 0, differences = 0;
    const int trials = 400;
    for (int t = 0; t < trials; ++t) {
      const Estimates e = estimate(rng, walks);
      for (std::size_t s = 0; s < 5; ++s) {
        const double truth = static_cast<double>(s + 1) / 6;
        outcomes += (e.outcomes[s] - truth) * (e.outcomes[s] - truth) / (5 * trials);
        differences += (e.differences[s] - truth) * (e.differences[s] - truth) / (5 * trials);
      }
    }
    EXPECT_LT(differences, outcomes);
    write_value("history-walk", "outcomes-" + std::to_string(walks), std::sqrt(outcomes));
    write_value("history-walk", "differences-" + std::to_string(walks), std::sqrt(differences));
  }
}

}  // namespace
}  // namespace rose::labs
