// Tests of the chapter "Curriculum map: one token, twelve times".

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

namespace rose::labs {
namespace {

// The whole way of one token, in twelve steps.
using Row = std::array<double, 4>;  // logits or probabilities of the tokens 4 5 6 ;
constexpr std::array<char, 4> kTokens = {'4', '5', '6', ';'};

Row probabilities(const Row& z) {
  Row p{};
  double sum = 0;
  for (std::size_t v = 0; v < 4; ++v) sum += p[v] = std::exp(z[v]);
  for (double& x : p) x /= sum;
  return p;
}

TEST(Map, FollowsOneTokenThroughTwelveForms) {
  const auto note = [](const char* name, double x) { write_value("map-trace", name, x); };
  const std::string task = "2+3=";                    // 1 bytes that the agent reads
  const std::vector<int> ids = {'2', '+', '3', '='};  // 2 ids of the tokenizer (here: bytes)
  note("bytes", static_cast<double>(task.size()));
  const std::vector<int> rows = {0, 5, 10};  // 3 packed: two attempts, end to end
  note("packed", rows.back());
  const Row engine = {0.3, 0.8, 0.6, -1.0};  // 4 logits of version 7, and a draw
  const std::size_t drawn = 1, other = 2;
  const double behaviour = std::log(probabilities(engine)[drawn]);
  note("log-probability", behaviour);
  const int answer = kTokens[drawn] - '0';  // 5 what the parser made of it
  note("answer", answer);
  const bool ended = true;                        // 6 what the world did: nothing follows
  const double reward = answer == 2 + 3 ? 1 : 0;  // 7 what the verifier says
  note("reward", reward);
  const double advantage = reward - 0;  // 8 minus the mean of the others' rewards
  note("advantage", advantage);
  Row now = {0.35, 0.85, 0.5, -1.0};  // the trainer is one small step further
  const double ratio = std::exp(std::log(probabilities(now)[drawn]) - behaviour);
  note("ratio", ratio);         // 9 how far it has moved from the sampler
  const int action_tokens = 2;  // 10 of ten packed tokens two were drawn
  const double coefficient = (ratio <= 1.2 ? ratio : 0) * advantage / action_tokens;
  note("coefficient", coefficient);
  const auto p = probabilities(now);  // 11 the gradient at the logits
  const double other_ratio = p[other] / probabilities(engine)[other];
  const double other_coefficient = (other_ratio >= 0.8 ? other_ratio : 0) * -1 / action_tokens;
  Row gradient{};
  for (std::size_t v = 0; v < 4; ++v)
    gradient[v] = coefficient * ((v == drawn ? 1 : 0) - p[v]) +
                  other_coefficient * ((v == other ? 1 : 0) - p[v]);
  note("gradient", gradient[drawn]);
  for (std::size_t v = 0; v < 4; ++v) now[v] += 1.0 * gradient[v];  // 12 the step, published as 8
  note("before", 100 * probabilities(engine)[drawn]);
  note("after", 100 * probabilities(now)[drawn]);
  EXPECT_TRUE(ended);
  EXPECT_GT(probabilities(now)[drawn], p[drawn]);
  EXPECT_NEAR(gradient[0] + gradient[1] + gradient[2] + gradient[3], 0, 1e-12);
}

}  // namespace
}  // namespace rose::labs
