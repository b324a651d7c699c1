// Tests of the chapter "Continuous batching".

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

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/infer/admission.h"
#include "rose/infer/request.h"
#include "rose/infer/step.h"

namespace rose::infer {
namespace {

// Count the row-steps of a group.
TEST(ContinuousBatching, AGroupWaitsForItsLongestMember) {
  const auto used = [](const std::vector<int>& lengths) {
    const int longest = *std::ranges::max_element(lengths);
    return std::pair(std::accumulate(lengths.begin(), lengths.end(), 0),
                     longest * static_cast<int>(lengths.size()));
  };
  EXPECT_EQ(used({10, 20, 30, 40, 50, 60, 70, 80}), std::pair(360, 640));
  EXPECT_EQ(used({800, 10, 10, 10, 10, 10, 10, 10}), std::pair(870, 6400));
}

// Work the example under each policy.
TEST(Admission, FollowsThePolicyAndThePatience) {
  std::vector<std::int32_t> order;
  std::vector<Applicant> window{{.cost = 2}, {.cost = 5}, {.cost = 1}, {.cost = 2}};
  const auto admitted = [&](AdmissionPolicy policy, std::int64_t pages, std::int64_t patience) {
    std::vector<std::int32_t> in;
    admit(policy, window, patience, order, [&](std::int32_t i) {
      const std::int64_t cost = window[static_cast<std::size_t>(i)].cost;
      if (cost > pages) return Admission::no_room;
      pages -= cost;
      in.push_back(i);
      return Admission::admitted;
    });
    return in;
  };
  using Indices = std::vector<std::int32_t>;
  EXPECT_EQ(admitted(AdmissionPolicy::fifo, 4, 10), Indices{0});
  EXPECT_EQ(admitted(AdmissionPolicy::pack, 4, 10), (Indices{0, 2}));
  EXPECT_EQ(admitted(AdmissionPolicy::shortest, 4, 10), (Indices{2, 0}));
  window[1].passed = 1;
  EXPECT_EQ(admitted(AdmissionPolicy::pack, 4, 1), Indices{});
  EXPECT_EQ(admitted(AdmissionPolicy::pack, 7, 1), (Indices{1, 0}));
  window[3].priority = 2;
  EXPECT_EQ(admitted(AdmissionPolicy::priority, 4, 10), (Indices{3, 0}));
  EXPECT_THROW(parse_admission_policy("lottery"), core::Error);
}

// Nobody is passed more often than patience allows.
TEST(Admission, NobodyIsForgotten) {
  constexpr std::int64_t patience = 20, seats = 4;
  for (const auto policy : {AdmissionPolicy::fifo, AdmissionPolicy::pack, AdmissionPolicy::shortest,
                            AdmissionPolicy::priority}) {
    core::Rng rng(3);
    std::vector<Applicant> waiting{{.cost = 9}};
    std::vector<std::int32_t> order;
    std::int64_t most = 0;
    for (int step = 0; step < 200; ++step) {
      for (int i = 0; i < 6; ++i)
        waiting.push_back({.cost = 1 + rng.below(8), .priority = static_cast<int>(rng.below(3))});
      std::int64_t free = 12, left = seats;
      std::vector<char> in(waiting.size(), 0);
      admit(policy, waiting, patience, order, [&](std::int32_t i) {
        const auto index = static_cast<std::size_t>(i);
        if (left == 0) return Admission::full;
        if (waiting[index].cost > free) return Admission::no_room;
        free -= waiting[index].cost, --left, in[index] = 1;
        for (std::size_t earlier = 0; earlier < index; ++earlier)
          waiting[earlier].passed += in[earlier] ? 0 : 1;
        return Admission::admitted;
      });
      std::vector<Applicant> still;
      for (std::size_t i = 0; i < waiting.size(); ++i) {
        most = std::max(most, waiting[i].passed);
        if (!in[i]) still.push_back(waiting[i]);
      }
      waiting = std::move(still);
    }
    EXPECT_LE(most, patience + seats) << static_cast<int>(policy);
    EXPECT_EQ(most > 0, policy != AdmissionPolicy::fifo);
  }
}

}  // namespace
}  // namespace rose::infer
