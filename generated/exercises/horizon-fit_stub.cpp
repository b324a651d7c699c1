// An exercise of the chapter "Long-horizon capability: what is in the weights and what stands around them".

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
#include "labs/rl/estimators.h"
#include "labs/rl/examples.h"

namespace rose::labs {
namespace {

// Minutes at which the fitted success rate passes a level.
struct Outcome {
  double minutes;
  double success;  // 0 or 1, or a rate
};

double horizon(std::span<const Outcome>, double /*level*/) {
  return 0;
}

// Recovers the horizon, and the others that follow from the slope.
TEST(HorizonFit, RecoversTheHorizon) {
  std::vector<Outcome> outcomes;
  for (double minutes = 0.5; minutes < 2000; minutes *= 1.5)
    outcomes.push_back({minutes, 1 / (1 + std::exp(-0.6 * std::log2(45 / minutes)))});
  EXPECT_NEAR(horizon(outcomes, 0.5), 45, 1e-6);
  EXPECT_NEAR(horizon(outcomes, 0.8) / 45, std::exp2(-std::log(4) / 0.6), 1e-6);
  std::vector<Outcome> constant_hazard;  // another truth: the fit still finds a horizon
  for (double minutes = 0.5; minutes < 2000; minutes *= 1.5)
    constant_hazard.push_back({minutes, std::exp2(-minutes / 45)});
  EXPECT_NEAR(horizon(constant_hazard, 0.5), 45, 12);
}

}  // namespace
}  // namespace rose::labs
