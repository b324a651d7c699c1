// Tests of the chapter "Keys, limits, and an address for operators".

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

#include "rose/core/hash.h"
#include "rose/core/json.h"
#include "rose/serve/admin.h"
#include "rose/serve/rate_limit.h"
#include "rose/text/tokenizer.h"

namespace rose::serve {
namespace {

// A burst, a wait, a debt.
TEST(RateLimiter, LetsBurstsPassAndHoldsTheRate) {
  RateLimiter limiter(100);
  const RateLimits limits{.requests = 6, .tokens = 600};
  RateLimiter::Time now{};
  const auto later = [&](double seconds) {
    now += std::chrono::duration_cast<RateLimiter::Time::duration>(
        std::chrono::duration<double>(seconds));
  };
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(limiter.request("a", limits, now));
  EXPECT_NEAR(limiter.request("a", limits, now).value_or(0), 10, 1e-9);
  EXPECT_FALSE(limiter.request("b", limits, now)) << "somebody else's bucket";
  later(10);
  EXPECT_FALSE(limiter.request("a", limits, now));
  EXPECT_TRUE(limiter.request("a", limits, now));
  EXPECT_FALSE(limiter.prompt("a", limits, 500, now));
  EXPECT_NEAR(limiter.prompt("a", limits, 200, now).value_or(0), 10, 1e-9);
  EXPECT_TRUE(std::isinf(limiter.prompt("a", limits, 601, now).value_or(0)));
  limiter.answer("a", limits, 400, now);  // now 300 below zero: half a minute of debt
  later(29);
  EXPECT_TRUE(limiter.prompt("a", limits, 1, now));
  later(2);
  EXPECT_FALSE(limiter.prompt("a", limits, 1, now));
  const Headers headers = limiter.headers("a", limits, now);
  EXPECT_EQ(headers[0], (std::pair<std::string, std::string>("x-ratelimit-limit-requests", "6")));
  EXPECT_EQ(headers[4].second, "9");
  later(120);
  int admitted = 0;
  for (int second = 0; second < 600; ++second, later(1))
    for (int i = 0; i < 5; ++i) admitted += limiter.request("a", limits, now) ? 0 : 1;
  EXPECT_EQ(admitted, 6 + 59) << "a burst, and ten minutes' worth";
  for (int i = 0; i < 1000; ++i) limiter.request("peer " + std::to_string(i), limits, now);
  EXPECT_LE(limiter.size(), 100U);
  EXPECT_EQ(short_duration(0.02), "20ms");
  EXPECT_EQ(short_duration(1.5), "1.5s");
  EXPECT_EQ(short_duration(360), "6m0s");
}

}  // namespace
}  // namespace rose::serve
