// Tests of the chapter "The trajectory contract".

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
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/rng.h"
#include "rose/rlhf/trajectory.h"
#include "rose/rlhf/trajectory_bytes.h"
#include "rose/rlhf/trajectory_file.h"
#include "rose/rlhf/trajectory_json.h"
#include "rose/rlhf/transcript.h"

namespace rose::rlhf {
namespace {

// A temperature and a forbidden token change the denominator.
TEST(Trajectory, BehaviourIsNotRaw) {
  const double raw = std::exp(2) / (std::exp(2) + std::exp(1) + 1);
  const double drawn = std::exp(4) / (std::exp(4) + std::exp(2));
  EXPECT_NEAR(raw, 0.665, 5e-4);
  EXPECT_NEAR(drawn, 0.881, 5e-4);
  labs::write_value("rl-record-behaviour", "ratio", drawn / raw);
}

// A small record, and what the check says of it when it is spoilt.
Trajectory small_record() {
  Trajectory t;
  t.id = "a/0";
  t.task = "a";
  t.group = "a";
  t.reason = "done";
  t.tokens = {1, 2, 3, 4, 5};
  t.trained = {0, 1, 1, 0, 1};
  t.version = {-1, 3, 3, -1, 4};
  t.raw = {0, -0.1f, -2.5f, 0, -1e-7f};
  t.behaviour = {0, -0.2f, -2.0f, 0, 0};
  t.support = {{}, {}, {2, 3, 9}, {}, {}};
  t.turns = {{Kind::observation, 0, 1, "s0", {}},
             {Kind::action, 1, 3, "", {}},
             {Kind::observation, 3, 4, "s1", {{"step", -0.25f}}},
             {Kind::action, 4, 5, "", {{"verdict", 1}, {"length", -0.1f}}}};
  return t;
}

std::string complaint(const std::function<void(Trajectory&)>& spoil) {
  Trajectory t = small_record();
  spoil(t);
  try {
    validate_for_training(t, 4);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::Code::corrupt);
    return error.what();
  }
  return "accepted";
}

// Every way to be wrong has its own message.
TEST(Trajectory, SaysWhatIsWrongWithIt) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string in = "trajectory 'a/0': ";
  EXPECT_EQ(complaint([](Trajectory&) {}), "accepted");
  EXPECT_EQ(complaint([](auto& t) { t.raw.pop_back(); }), in + "raw has 4 entries for 5 tokens");
  EXPECT_EQ(complaint([](auto& t) { t.raw[1] = 0.5f; }),
            in + "raw of token 1 is 0.5: a log-probability is at most 0");
  EXPECT_EQ(complaint([&](auto& t) { t.behaviour[4] = nan; }), in + "behaviour of token 4 is nan");
  EXPECT_EQ(complaint([](auto& t) { t.trained[0] = 1; }),
            in + "token 0 is trained, and it is an observation");
  EXPECT_EQ(complaint([](auto& t) {
              t.trained = {0, 0, 0, 0, 0};
            }),
            in + "no token is trained: the mask selects nothing");
  EXPECT_EQ(complaint([](auto& t) { t.version[4] = 5; }),
            in + "version of token 4 is 5, from the future: the newest is 4");
  EXPECT_EQ(complaint([](auto& t) {
              t.support[2] = {2, 9};
            }),
            in + "token 2 is 3, which its support of 2 ids forbids");
  EXPECT_EQ(complaint([&](auto& t) { t.turns[3].rewards[0].value = nan; }),
            in + "reward 'verdict' of turn 3 is nan");
  EXPECT_EQ(complaint([](auto& t) { t.turns[2].begin = 2; }),
            in + "turn 2 begins at 2, expected 3");
  EXPECT_EQ(complaint([](auto& t) { t.turns.pop_back(); }), in + "the turns end at 4 of 5 tokens");
  EXPECT_EQ(complaint([](auto& t) { t.mixed = true; }),
            in + "it is mixed: keys of old weights were used under new ones");
  EXPECT_EQ(complaint([](auto& t) { t.id.clear(); }), "trajectory '': it has no id");
}

// Rewards land on the action that earned them.
TEST(Trajectory, RewardsLandOnTheActionBeforeThem) {
  const Trajectory t = small_record();
  EXPECT_EQ(trained_tokens(t), 3u);
  EXPECT_NEAR(total_reward(t), 0.65, 1e-7);
  EXPECT_EQ(staleness(t, 6), 3);
  const std::vector<double> rewards = token_rewards(t);
  const double expected[] = {0, 0, -0.25, 0, 0.9};
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(rewards[i], expected[i], 1e-7);
}

// A prompt that repeats the history appends; any other forks.
TEST(Transcript, GrowsOrForks) {
  Trajectory start;
  start.id = "t";
  Transcript transcript(start);
  transcript.observe(std::vector<std::int32_t>{7, 8});
  transcript.act(std::vector<SampledToken>{{20, 1, -1, -1}, {21, 1, -1, -1}});
  EXPECT_FALSE(transcript.observe_prompt(std::vector<std::int32_t>{7, 8, 20, 21, 9}));
  EXPECT_EQ(transcript.tokens().size(), 5u);
  transcript.act(std::vector<SampledToken>{{30, 1, -1, -1}});
  // "un" + "do" comes back as one token
  EXPECT_TRUE(transcript.observe_prompt(std::vector<std::int32_t>{7, 8, 22, 9, 30, 10}));
  transcript.act(std::vector<SampledToken>{{31, 2, -1, -1}});
  transcript.reward("verdict", 1);
  const auto all = transcript.finish(Ending::terminated, "done");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].reason, "fork");
  EXPECT_EQ(trained_tokens(all[0]), 3u);
  EXPECT_EQ(*all[1].fork, (Fork{"t", 2, 20, 22}));
  EXPECT_EQ(all[1].id, "t+1");
  EXPECT_EQ(trained_tokens(all[1]), 1u);

  Transcript strict(start, OnFork::refuse);
  strict.observe(std::vector<std::int32_t>{7, 8});
  EXPECT_THROW(strict.observe_prompt(std::vector<std::int32_t>{7}), core::Error);
  EXPECT_THROW(Transcript(start).reward("early", 1), core::Error);
  EXPECT_THROW(strict.reward("wild", INFINITY), core::Error);
}

// Both forms come back the same.
struct RecordFile {
  std::filesystem::path path;
  std::vector<Trajectory> written;
  std::string bytes;
};

RecordFile write_records(const std::string& name) {
  RecordFile file{std::filesystem::temp_directory_path() / name, {}, {}};
  core::Rng rng(5);
  TrajectoryWriter writer(file.path, form_of(file.path));
  for (int k = 0; k < 3; ++k) {
    Trajectory t = small_record();
    t.id = "a/" + std::to_string(k);
    t.seed = rng.next64();
    t.environment = "caf\u00e9 \"quoted\"\n";
    for (const std::size_t i : {1u, 2u, 4u}) t.raw[i] = -std::exp(8 * rng.normal());
    if (k == 1) t.fork = Fork{"a/0", 3, 4, -1};
    if (k == 2) t.ending = Ending::truncated;
    writer.write(t);
    file.written.push_back(t);
  }
  writer.finish();
  file.bytes = core::read_file(file.path);
  return file;
}

TEST(TrajectoryFile, ComesBackTheSame) {
  for (const char* name : {"rl-record.jsonl", "rl-record.bin"}) {
    const RecordFile file = write_records(name);
    EXPECT_EQ(read_trajectories(file.path), file.written) << name;
    labs::write_value("rl-record-files", name[10] == 'j' ? "json" : "binary",
                      double(file.bytes.size()) / 3);
  }
  Trajectory longer = small_record();
  longer.tokens.push_back(6);
  longer.trained.push_back(1);
  longer.version.push_back(4);
  longer.raw.push_back(-1);
  longer.behaviour.push_back(-1);
  longer.support.emplace_back();
  longer.turns.back().end = 6;
  labs::write_value("rl-record-files", "token",
                    double(to_bytes(longer).size() - to_bytes(small_record()).size()));
}

// No damage goes unnoticed.
TEST(TrajectoryFile, NoCutGoesUnnoticed) {
  for (const char* name : {"rl-cut.jsonl", "rl-cut.bin"}) {
    const RecordFile file = write_records(name);
    for (std::size_t size = 0; size < file.bytes.size(); ++size) {
      core::write_file_atomic(file.path, file.bytes.substr(0, size));
      EXPECT_THROW((void)read_trajectories(file.path), core::Error) << name << " " << size;
      try {
        const TrajectoryFile rest = salvage_trajectories(file.path);
        EXPECT_FALSE(rest.damage.empty());
        for (std::size_t k = 0; k < rest.trajectories.size(); ++k)
          EXPECT_EQ(rest.trajectories[k], file.written[k]);
      } catch (const core::Error& error) {
        EXPECT_EQ(error.code(), core::Code::corrupt);  // nothing was whole
      }
    }
  }
}

TEST(TrajectoryFile, NoSpoiltByteGoesUnnoticed) {
  const RecordFile file = write_records("rl-spoilt.bin");
  for (std::size_t i = 0; i < file.bytes.size(); ++i) {
    std::string spoilt = file.bytes;
    spoilt[i] = static_cast<char>(spoilt[i] ^ (1 << (i % 8)));
    core::write_file_atomic(file.path, spoilt);
    EXPECT_THROW((void)read_trajectories(file.path), core::Error) << i;
  }
}

}  // namespace
}  // namespace rose::rlhf
