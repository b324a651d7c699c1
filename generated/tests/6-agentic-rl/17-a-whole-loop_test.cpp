// Tests of the chapter "A whole loop, small enough to read".

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
#include "rose/rlhf/toy.h"
#include "rose/rlhf/toy_policy.h"
#include "rose/rlhf/toy_world.h"
#include "rose/rlhf/trajectory_file.h"

namespace rose::rlhf {
namespace {

// Twenty seeds of twenty arrive, and the first step is on-policy.
TEST(Toy, LearnsWithEverySeedAndStartsOnPolicy) {
  double slowest = 0, episodes = 0, first = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const ToyResult result = train_toy({.seed = seed});
    EXPECT_TRUE(result.reached) << seed << ": " << result.success;
    EXPECT_GE(result.success, 0.95);
    for (const ToyPoint& point : result.curve) {
      ASSERT_EQ(point.first.ratio_min, 1);
      ASSERT_EQ(point.first.ratio_max, 1);
    }
    slowest = std::max(slowest, double(result.curve.size()));
    episodes += double(result.episodes) / 20;
    first += result.curve.front().training / 20;
  }
  labs::write_value("rl-toy-seeds", "slowest", slowest);
  labs::write_value("rl-toy-seeds", "episodes", episodes);
  labs::write_value("rl-toy-seeds", "first", first);
}

// A seed gives the same bits, and every record is valid.
TEST(Toy, RepeatsItsBitsAndWritesValidRecords) {
  const auto path = std::filesystem::temp_directory_path() / "rl-toy.bin";
  TrajectoryWriter writer(path, Form::binary);
  std::vector<Trajectory> seen;
  ToyOptions options{.seed = 3, .updates = 12};
  options.record = [&](const Trajectory& t) {
    writer.write(t);
    seen.push_back(t);
  };
  const ToyResult one = train_toy(options);
  writer.finish();
  EXPECT_EQ(read_trajectories(path), seen);
  std::vector<Trajectory> again;
  options.record = [&](const Trajectory& t) { again.push_back(t); };
  const ToyResult two = train_toy(options);
  EXPECT_EQ(again, seen);
  EXPECT_EQ(one.success, two.success);
  EXPECT_NE(train_toy({.seed = 4, .updates = 12}).curve.back().training, one.curve.back().training);
}

TEST(Toy, OpeningAtOnceIsRightOneTimeInFour) {
  double right = 0;
  for (std::uint64_t task = 0; task < 4000; ++task)
    right += ToyWorld(task).step(toy::open, toy::door + 2).reward;
  EXPECT_NEAR(right / 4000, 0.25, 0.03);
  const ToyWorld world(5);
  std::int32_t shown = 0;
  for (std::int32_t c = 0; c < 4; ++c) {
    const auto sign = world.step(toy::look, toy::colour + c);
    EXPECT_FALSE(sign.over);
    if (sign.observation != toy::nothing) shown = sign.observation;
  }
  EXPECT_EQ(world.step(toy::open, shown).reward, 1);
}

}  // namespace
}  // namespace rose::rlhf
