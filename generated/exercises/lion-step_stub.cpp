// An exercise of the chapter "Optimizers and schedules".

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

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/trainer/adamw.h"
#include "rose/trainer/optimizer.h"
#include "rose/trainer/rate_schedule.h"
#include "rose/trainer/schedule.h"
#include "rose/trainer/spikes.h"

namespace rose::trainer {
namespace {

// Step by the sign of the average.

/// Updates weight and momentum in place; all three have the same size.
inline void lion_step(std::span<float> weight, std::span<const float> gradient,
                      std::span<float> momentum, float beta1, float beta2, float rate,
                      float decay) {
  (void)weight, (void)gradient, (void)momentum, (void)beta1, (void)beta2, (void)rate, (void)decay;
}

// Lion by hand.
TEST(Lion, AgreesWithTheHand) {
  std::vector<float> w{1.0f, -2.0f}, m(2, 0.0f);
  lion_step(w, std::vector<float>{2.0f, 0.0f}, m, 0.9f, 0.99f, 0.1f, 0.0f);
  EXPECT_NEAR(w[0], 0.9f, 1e-7);
  EXPECT_EQ(w[1], -2.0f);  // no gradient, no sign, no step
  lion_step(w, std::vector<float>{-1.0f, 0.0f}, m, 0.9f, 0.99f, 0.1f, 0.5f);
  EXPECT_NEAR(w[0], 0.9f - 0.1f * (-1.0f + 0.45f), 1e-6);
  EXPECT_NEAR(m[0], 0.0098f, 1e-7);
  EXPECT_NEAR(w[1], -2.0f + 0.1f, 1e-6);
}

}  // namespace
}  // namespace rose::trainer
