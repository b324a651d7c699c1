// Tests of the chapter "Terminology: what the words mean here".

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
#include "labs/rl/ledger.h"

namespace rose::labs {
namespace {

// Twelve systems, classified by their own reports.
TEST(Terminology, ClassifiesByFiveAnswers) {
  const System react{false, false, true, true, true};
  const System toolformer{true, false, true, false, false};  // filtered by loss, not by reward
  const System reflexion{false, false, true, true, true}, voyager = reflexion;
  const System webgpt = toolformer;  // the best variant: imitation, then selection at use
  const System dpo{true, true, false, false, false};
  const System instruct_gpt{true, true, true, false, false}, r1 = instruct_gpt;
  const System search_r1{true, true, true, true, true}, retool = search_r1, sao = search_r1;
  const System tongyi = search_r1;
  for (const System& s : {react, reflexion, voyager}) EXPECT_EQ(classify(s), Kind::no_training);
  for (const System& s : {toolformer, webgpt}) EXPECT_EQ(classify(s), Kind::imitation);
  EXPECT_EQ(classify(dpo), Kind::offline_preferences);
  for (const System& s : {instruct_gpt, r1}) EXPECT_EQ(classify(s), Kind::one_decision);
  for (const System& s : {search_r1, retool, sao, tongyi}) EXPECT_EQ(classify(s), Kind::agentic);
}

// One episode on four clocks.
TEST(Ledger, CountsOneEpisodeOnFourClocks) {
  const std::array transcript = {Piece{Owner::harness, 60},   Piece{Owner::task, 40},
                                 Piece{Owner::policy, 25, 7}, Piece{Owner::world, 900},
                                 Piece{Owner::policy, 18, 7}, Piece{Owner::world, 350},
                                 Piece{Owner::policy, 57, 8}};
  const Ledger l = count(transcript);
  EXPECT_EQ(l.context, 1450);
  EXPECT_EQ(l.sampled, 100);
  EXPECT_EQ(l.decisions, 3);
  EXPECT_EQ(l.newest - l.oldest, 1);
  EXPECT_EQ(l.after_first, 75);
  EXPECT_EQ(l.everything_after_first, 1325);
  write_value("rl-ledger-test", "context", l.context);
  write_value("rl-ledger-test", "sampled", l.sampled);
  write_value("rl-ledger-test", "decisions", l.decisions);
  write_value("rl-ledger-test", "by-turns", std::pow(0.99, l.decisions - 1));
  write_value("rl-ledger-test", "by-own", std::pow(0.99, l.after_first));
  write_value("rl-ledger-test", "by-all", std::pow(0.99, l.everything_after_first));
}

}  // namespace
}  // namespace rose::labs
