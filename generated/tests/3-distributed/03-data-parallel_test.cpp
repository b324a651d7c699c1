// Tests of the chapter "Data parallel".

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

#include <fmt/format.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/dist/collective_cost.h"
#include "rose/dist/collectives.h"
#include "rose/dist/simulated_wire.h"
#include "rose/model/weights.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/data_parallel.h"
#include "rose/trainer/gradient_tree.h"
#include "rose/trainer/loop.h"

namespace rose::trainer {
namespace {

// The tree of groups is the tree of ranks.
TEST(GradientTree, IsBalancedAndHoldsFewSums) {
  core::Rng rng(1);
  for (const std::size_t groups : {1U, 2U, 4U, 8U, 16U}) {
    GradientTree tree;
    std::vector<std::vector<float>> parts(groups, std::vector<float>(50));
    for (auto& part : parts) {
      for (float& x : part) x = std::ldexp(rng.normal(), static_cast<int>(rng.below(24)));
      std::vector<std::span<float>> spans{std::span(part).first(20), std::span(part).subspan(20)};
      tree.push(spans);
      EXPECT_LE(tree.partials(), static_cast<std::size_t>(std::bit_width(groups)));
    }
    std::vector<float> sum(50);
    const std::span<float> all(sum);
    tree.take(std::span(&all, 1));
    dist::tree_sum(parts);
    EXPECT_EQ(sum, parts.front());
  }
}

// Two processes, and four, leave the bits that one leaves.
model::Config parallel_config() {
  model::Config c;
  c.family = model::Family::llama;
  c.vocab_size = 50, c.layers = 2, c.hidden = 32, c.heads = 2, c.kv_heads = 1, c.head_dim = 16;
  c.ffn = 48, c.max_positions = 32, c.tied_head = true;
  return c;
}

struct Trace {
  std::vector<double> losses, norms;
  std::vector<float> weights;
  bool operator==(const Trace&) const = default;
};

/// `steps` steps of 8 micro-batches on so many processes; what the first of them saw.
Trace trained(int processes, std::int64_t groups, int steps) {
  std::vector<Trace> traces(static_cast<std::size_t>(processes));
  dist::simulate(processes, {}, [&](dist::Wire& wire) {
    core::ThreadPool pool(1);
    dist::Group group(wire);
    auto inner = std::make_unique<CpuCompute>(model::random_weights(parallel_config(), 3),
                                              ComputeOptions{}, pool);
    DataParallelCompute compute(std::move(inner), group, 8, groups);
    core::Rng data(17);
    const BatchSource source = [&](std::int64_t, std::int64_t, MicroBatchBuffer& out) {
      out.clear();
      const auto length = static_cast<int>(4 + data.below(12));
      for (int t = 0; t < length; ++t)
        out.push(static_cast<std::int32_t>(data.below(50)),
                 data.below(3) == 0 ? -1 : static_cast<std::int32_t>(data.below(50)));
      out.end_sequence();
    };
    Loop loop(compute, source,
              {.rows = 1,
               .context = 16,
               .micro_batches = 8,
               .clip = 0.5,
               .rate = {.shape = RateShape::constant}});
    Trace& trace = traces[static_cast<std::size_t>(wire.rank())];
    for (int step = 0; step < steps; ++step) {
      const StepReport report = loop.step();
      trace.losses.push_back(report.sum.mean()), trace.norms.push_back(report.gradient_norm);
    }
    for (const model::Parameter& p : compute.weights().parameters())
      trace.weights.insert(trace.weights.end(), p.f32().begin(), p.f32().end());
  });
  for (const Trace& trace : traces) EXPECT_EQ(trace, traces.front());
  return traces.front();
}

TEST(DataParallel, AnyNumberOfProcessesLeavesTheSameBits) {
  for (const std::int64_t groups : {2, 4, 8}) {
    const Trace one = trained(1, groups, 20);
    for (int processes = 2; processes <= groups; processes *= 2)
      EXPECT_EQ(trained(processes, groups, 20), one) << processes << " of " << groups;
  }
  // Other groups are another order: near, and not the same.
  const Trace two = trained(1, 2, 3), four = trained(1, 4, 3);
  EXPECT_NE(two.weights, four.weights);
  for (std::size_t i = 0; i < two.losses.size(); ++i)
    EXPECT_NEAR(two.losses[i], four.losses[i], 1e-5);
}

// What cannot be shared equally is refused.
TEST(DataParallel, WhatCannotBeSharedIsRefused) {
  const auto error = [](int processes, std::int64_t micro_batches, std::int64_t groups) {
    try {
      dist::simulate(processes, {}, [&](dist::Wire& wire) {
        dist::Group group(wire);
        DataParallelCompute(std::make_unique<CpuCompute>(
                                model::random_weights(parallel_config(), 3), ComputeOptions{}),
                            group, micro_batches, groups);
      });
    } catch (const core::Error& e) {
      return e.message();
    }
    return std::string();
  };
  EXPECT_EQ(error(2, 8, 4), "");
  EXPECT_EQ(error(1, 8, 3), "3 groups");
  EXPECT_EQ(error(4, 8, 2), "4 processes cannot share 2 groups equally");
  EXPECT_EQ(error(3, 9, 4), "3 processes cannot share 4 groups equally");
  EXPECT_EQ(error(2, 6, 4), "6 micro-batches cannot be cut into 4 groups");
}

// From where on a step is all network.
TEST(DataParallelCost, TokensPerDeviceDecide) {
  const double flops = 400e12, beta = 1 / 50e9;  // a device, a network card
  const double tokens = 8 * flops * beta / 6;    // of a device, at which both take equally long
  for (const double parameters : {1e9, 70e9}) {
    const double compute = 6 * parameters * tokens / flops;
    const double network =
        2 * dist::collective_cost(dist::Algorithm::direct, {0, beta}, 1024, 4 * parameters);
    EXPECT_NEAR(network / compute, 1, 2e-3);
  }
  labs::write_value("dp-cost-test", "tokens", std::round(tokens));
}

}  // namespace
}  // namespace rose::trainer
