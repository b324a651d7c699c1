// Tests of the chapter "How to contribute".

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

namespace rose::labs {
namespace {

// A derivative is within its bound, and a wrong one is not.
double softplus(double x) {
  return std::log1p(std::exp(x));
}
double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(Contribute, ADerivativeIsWithinItsBoundAndAWrongOneIsNot) {
  const double h = 1e-3;
  int caught = 0;
  for (double x = -4; x <= 4; x += 0.25) {
    const double measured = (softplus(x + h) - softplus(x - h)) / (2 * h);
    const double bound = h * h / 6 / 8 + 2 * 2.3e-16 * (softplus(x) + 1) / h;
    EXPECT_NEAR(measured, logistic(x), bound);
    if (std::fabs(measured - logistic(-x)) > bound) ++caught;
  }
  EXPECT_EQ(caught, 32);  // of 33: at 0 the wrong formula is right
}

}  // namespace
}  // namespace rose::labs
