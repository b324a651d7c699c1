// Tests of the chapter "Attention on the GPU, forward".

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

#include "labs/gpu/gpu_test.h"
#include "rose/core/error.h"
#include "rose/kernels/attention.h"
#include "rose/kernels/gpu/attention.h"
#include "rose/kernels/gpu/attention_arguments.h"

namespace rose::kernels {
namespace {

// Three keys, one at a time and merged.
struct HandState {
  double max, sum, weighted;
  void merge(const HandState& b) {
    const double m = std::max(max, b.max);
    sum = std::exp2(max - m) * sum + std::exp2(b.max - m) * b.sum;
    weighted = std::exp2(max - m) * weighted + std::exp2(b.max - m) * b.weighted;
    max = m;
  }
};

TEST(AttentionByHand, TilesAndMergesGiveFour) {
  HandState s{0, 1, 8};
  s.merge({1, 1, 2});
  EXPECT_EQ(s.sum, 1.5);
  EXPECT_EQ(s.weighted, 6);
  s.merge({3, 1, 4});
  EXPECT_EQ(s.sum, 1.375);
  EXPECT_EQ(s.weighted / s.sum, 4);
  HandState last{1, 1, 2}, first{0, 1, 8};
  last.merge({3, 1, 4});
  EXPECT_EQ(last.sum, 1.25);
  EXPECT_EQ(last.weighted, 4.5);
  first.merge(last);
  EXPECT_EQ(first.sum, 1.375);
  EXPECT_EQ(first.weighted, 5.5);
}

// An unmoved maximum rescales by exactly 1, if it is kept scaled and rounded.
TEST(AttentionOrder, KeepingTheMaximumScaledMakesTheFactorExact) {
  core::Rng rng(3);
  const float c = 0.125f * 1.44269504f;
  int inexact = 0;
  for (int i = 0; i < 10'000; ++i) {
    const float m = 40.0f * rng.normal(), scaled = m * c;
    EXPECT_EQ(std::exp2(scaled - scaled), 1.0f);
    inexact += std::exp2(std::fma(m, c, -scaled)) != 1.0f;
  }
  EXPECT_GT(inexact, 1000);  // the tempting form is off by the rounding of m c
}

}  // namespace
}  // namespace rose::kernels

namespace rose::kernels::gpu {
namespace {

// Count what a plan covers.

/// How often a plan takes each query row and each partial result, and in how many splits.
struct PlanCount {
  std::map<std::array<std::int64_t, 3>, int> rows;             // sequence, head, row
  std::map<std::int64_t, int> slots;                           // partial results
  std::map<std::array<std::int64_t, 3>, std::int64_t> splits;  // sequence, head, first row
  std::int64_t merged = 0;

  PlanCount(const AttentionPlan& plan, std::span<const std::int32_t> offsets,
            std::span<const std::int32_t> lengths, std::int64_t group) {
    const auto tokens = [&](std::int64_t sequence) {
      const auto s = static_cast<std::size_t>(sequence);
      return std::int64_t{offsets[s + 1]} - offsets[s];
    };
    const auto seen = [&](std::int64_t sequence, std::int64_t first) {  // by the last of 128 rows
      const std::int64_t last = std::min(first + 128, tokens(sequence) * group) - 1;
      return std::max<std::int64_t>(
          0, lengths[static_cast<std::size_t>(sequence)] - tokens(sequence) + last / group + 1);
    };
    const auto item = [&](std::int64_t list, std::int64_t i, std::int64_t words = 4) {
      return std::span(plan.words)
          .subspan(static_cast<std::size_t>(list + words * i), static_cast<std::size_t>(words));
    };
    const auto mark = [&](std::int64_t sequence, std::int64_t head, std::int64_t first,
                          std::int64_t most) {
      const auto s = static_cast<std::size_t>(sequence);
      const std::int64_t end = (offsets[s + 1] - offsets[s]) * group;
      for (std::int64_t r = first; r < std::min(first + most, end); ++r)
        ++rows[{sequence, head, r}];
    };
    for (std::int64_t i = 0; i < plan.rows; ++i) {
      const auto w = item(plan.row_items, i);
      const std::int64_t head = w[2] & 0xffff, split = w[2] >> 16;
      if (split == 0) mark(w[0], head, w[1], 128);
      if (w[3] < 0) continue;
      const std::int64_t limit = seen(w[0], w[1]), all = (limit + 511) / 512;
      EXPECT_LT(split, all);
      const std::int64_t end = std::min<std::int64_t>(w[1] + 128, tokens(w[0]) * group);
      for (std::int64_t first = w[1]; first < end; first += 16) {
        EXPECT_EQ((splits[{w[0], head, first}]++), split);
        ++slots[w[3] + (first - w[1]) / 16 * all];
      }
    }
    for (std::int64_t i = 0; i < plan.splits; ++i) {
      const auto w = item(plan.split_items, i, 8);
      const std::int64_t head = w[1] & 0xffff, first = (w[1] >> 16) * 16;
      EXPECT_EQ((splits[{w[0], head, first}]++), w[2]);  // splits come in order
      if (w[2] == 0) mark(w[0], head, first, 16);
      if (w[3] >= 0) ++slots[w[3]];
    }
    for (std::int64_t i = 0; i < plan.merges; ++i) {
      const auto w = item(plan.merge_items, i);
      EXPECT_EQ((splits[{w[0], w[1] & 0xffff, (w[1] >> 16) * 16}]), w[3]);
      for (std::int64_t s = w[2]; s < w[2] + w[3]; ++s) EXPECT_EQ(slots[s], 1);
      merged += w[3];
    }
  }
};

// A plan covers every row and split exactly once.
TEST(AttentionPlan, CoversEveryRowAndSplitExactlyOnce) {
  core::Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t group = 1 + rng.below(8), kv_heads = 1 + rng.below(3);
    std::vector<std::int32_t> offsets{0}, lengths;
    for (std::uint32_t s = rng.below(6); s > 0; --s) {
      const auto tokens =
          static_cast<std::int32_t>(rng.below(3) == 0 ? rng.below(300) : rng.below(3));
      offsets.push_back(offsets.back() + tokens);
      lengths.push_back(tokens + static_cast<std::int32_t>(rng.below(2) * rng.below(3000)));
    }
    const AttentionOptions options{
        .path = rng.below(2) == 0 ? AttentionPath::automatic : AttentionPath::rows,
        .divide_below = static_cast<std::int64_t>(rng.below(2) * rng.below(200))};
    const AttentionPlan plan =
        plan_attention({group * kv_heads, kv_heads, 64, 0.125f}, offsets, lengths, options);
    const PlanCount count(plan, offsets, lengths, group);
    EXPECT_EQ(count.merged, plan.slots);
    EXPECT_EQ(static_cast<std::int64_t>(count.rows.size()), offsets.back() * group * kv_heads);
    for (const auto& [row, times] : count.rows) EXPECT_EQ(times, 1);
  }
}

TEST(AttentionPlan, EmptyItemsFillTheListsUp) {
  const AttentionPlan plan =
      plan_attention({2, 1, 64, 0.125f}, std::vector<std::int32_t>{0, 1},
                     std::vector<std::int32_t>{700}, {.least_splits = 7, .least_merges = 3});
  EXPECT_EQ(plan.splits, 7);
  EXPECT_EQ(plan.merges, 3);
  EXPECT_EQ(plan.slots, 7);
  for (std::int64_t i = 2; i < 7; ++i) {
    EXPECT_EQ(plan.words[static_cast<std::size_t>(plan.split_items + 8 * i)], -1);
  }
}

// Errors name the argument.
template <class F>
std::string argument_of(F&& call) {
  try {
    call();
  } catch (const core::Error& error) {
    return error.argument();
  }
  return "nothing";
}

TEST(AttentionChecks, ErrorsNameTheArgument) {
  const std::vector<std::int32_t> offsets{0, 3};
  const AttentionShape good{4, 2, 64, 0.125f};
  EXPECT_EQ(argument_of([&] { plan_attention({4, 3, 64, 0.125f}, offsets); }), "shape");
  EXPECT_EQ(argument_of([&] { plan_attention({4, 2, 80, 0.125f}, offsets); }), "shape");
  EXPECT_EQ(argument_of([&] { plan_attention({4, 2, 64, -1.0f}, offsets); }), "shape");
  EXPECT_EQ(argument_of([&] { plan_attention(good, {}); }), "row_offsets");
  EXPECT_EQ(argument_of([&] {
              plan_attention(good, std::vector<std::int32_t>{0, 3, 2});
            }),
            "row_offsets");
  EXPECT_EQ(argument_of([&] {
              plan_attention(good, offsets, std::vector<std::int32_t>{1, 2});
            }),
            "key_lengths");
  EXPECT_EQ(argument_of([&] { plan_attention(good, offsets, {}, {.key_split = 100}); }), "options");
}

// So are matrices, workspaces and caches that do not fit the plan.
TEST(AttentionChecks, ArgumentsFitThePlan) {
  const std::vector<std::int32_t> offsets{0, 3}, lengths{3};
  const AttentionShape good{4, 2, 64, 0.125f};
  const AttentionPlan plan = plan_attention(good, offsets);
  alignas(256) static std::byte memory[1 << 16];
  const auto matrix = [](std::int64_t cols) { return Matrix{memory, DType::bf16, 3, cols}; };
  const Workspace workspace{memory, sizeof memory};
  const auto run = [&](const Matrix& q, const Matrix& k, const Workspace& w) {
    return argument_of([&] { attention(plan, q, k, matrix(128), matrix(256), nullptr, w, {}); });
  };
  EXPECT_EQ(run({memory, DType::i32, 3, 256}, matrix(128), workspace), "q");
  EXPECT_EQ(run({memory + 2, DType::bf16, 3, 256}, matrix(128), workspace), "q");
  EXPECT_EQ(run(matrix(256), {memory, DType::bf16, 3, 128, 129}, workspace), "k");
  EXPECT_EQ(run(matrix(256), matrix(64), workspace), "k");
  EXPECT_EQ(run(matrix(256), matrix(128), {memory, 16}), "workspace");

  const AttentionPlan cached = plan_attention(good, offsets, lengths);
  const std::int32_t table[1] = {0};
  KvView kv{memory, memory, DType::bf16, 1, 2, 64, 2, 4, table, 1};
  const auto through = [&](int layer) {
    return argument_of(
        [&] { attention(cached, matrix(256), kv, layer, matrix(256), nullptr, workspace, {}); });
  };
  EXPECT_EQ(through(1), "layer");
  EXPECT_EQ(through(0), "kv");  // three keys, one page of two
  kv.head_dim = 128;
  EXPECT_EQ(through(0), "kv");
}

TEST(AttentionChecks, NoTokensNeedNoGpu) {
  const AttentionPlan plan = plan_attention({4, 2, 64, 0.125f}, std::vector<std::int32_t>{0, 0, 0});
  alignas(256) std::byte memory[256];
  const Workspace workspace{memory, sizeof memory};
  upload(plan, workspace, {});
  const Matrix none{nullptr, DType::bf16, 0, 256}, keys{nullptr, DType::bf16, 0, 128};
  attention(plan, none, keys, keys, none, nullptr, workspace, {});
}

}  // namespace
}  // namespace rose::kernels::gpu
