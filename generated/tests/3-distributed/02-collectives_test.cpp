// Tests of the chapter "Collectives from first principles".

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
#include "rose/dist/group.h"
#include "rose/dist/simulated_wire.h"

namespace rose::dist {
namespace {

// Formulas and clocks agree.
using Body = std::function<void(Wire&, std::span<float>, std::span<const std::size_t>)>;

/// Elements that any number of ranks up to 8 divides.
constexpr std::size_t even_count = 840;

double simulated(int ranks, WireCost cost, const Body& run) {
  return simulate(ranks, cost,
                  [&](Wire& wire) {
                    std::vector<float> values(even_count);
                    run(wire, values, even_pieces(values.size(), ranks));
                  })
      .seconds();
}

std::vector<std::size_t> in_bytes(std::span<const std::size_t> offsets) {
  std::vector<std::size_t> out;
  for (const std::size_t o : offsets) out.push_back(o * sizeof(float));
  return out;
}

TEST(CollectiveCost, FormulasAndClocksAgree) {
  const Call call{1, "cost"};
  const std::vector<std::pair<Algorithm, Body>> runs{
      {Algorithm::tree,
       [&](Wire& w, auto v, auto) {
         broadcast_tree(w, call, std::as_writable_bytes(v), w.size() / 2);
       }},
      {Algorithm::tree, [&](Wire& w, auto v, auto) { reduce_tree(w, call, v); }},
      {Algorithm::ring, [&](Wire& w, auto v, auto o) { reduce_scatter_ring(w, call, v, o); }},
      {Algorithm::ring,
       [&](Wire& w, auto v, auto o) {
         all_gather_ring(w, call, std::as_writable_bytes(v), in_bytes(o));
       }},
      {Algorithm::direct, [&](Wire& w, auto v, auto o) { reduce_scatter_direct(w, call, v, o); }},
      {Algorithm::halving, [&](Wire& w, auto v, auto o) { reduce_scatter_halving(w, call, v, o); }},
      {Algorithm::halving,
       [&](Wire& w, auto v, auto o) {
         all_gather_doubling(w, call, std::as_writable_bytes(v), in_bytes(o));
       }},
      {Algorithm::doubling, [&](Wire& w, auto v, auto) { all_reduce_doubling(w, call, v); }},
  };
  for (const WireCost cost : {WireCost{1e-6, 1e-9}, WireCost{1e-6, 0}, WireCost{0, 1e-9}}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (const auto& [algorithm, run] : runs) {
        const bool powers = algorithm == Algorithm::halving || algorithm == Algorithm::doubling;
        if (powers && !std::has_single_bit(static_cast<unsigned>(ranks))) continue;
        const double formula = collective_cost(algorithm, cost, ranks, 4.0 * even_count);
        const double clock = simulated(ranks, cost, run), rounding = 1e-9 * formula + 1e-18;
        EXPECT_LE(clock, formula + rounding) << static_cast<int>(algorithm) << " on " << ranks;
        if (algorithm == Algorithm::tree && !std::has_single_bit(static_cast<unsigned>(ranks)))
          continue;
        EXPECT_NEAR(clock, formula, rounding) << static_cast<int>(algorithm) << " on " << ranks;
      }
    }
  }
  const WireCost wire{5e-6, 1 / 50e9};
  const auto all_reduce = [&](double bytes) {
    return 2 * collective_cost(Algorithm::ring, wire, 8, bytes);
  };
  labs::write_value("collective-cost-test", "small-ratio",
                    all_reduce(1024) / collective_cost(Algorithm::doubling, wire, 8, 1024));
  labs::write_value("collective-cost-test", "large-ratio",
                    collective_cost(Algorithm::doubling, wire, 8, 1e9) / all_reduce(1e9));
}

// Every algorithm gives its order's bits.
std::vector<float> brought(int rank, std::size_t n) {
  core::Rng rng(11, static_cast<std::uint64_t>(rank));
  std::vector<float> values(n);
  for (float& x : values) x = std::ldexp(rng.normal(), static_cast<int>(rng.below(24)));
  return values;
}

/// What each rank has after the body.
std::vector<std::vector<float>> after(int ranks, std::size_t n,
                                      const std::function<void(Wire&, std::span<float>)>& body) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(ranks));
  simulate(ranks, {1e-6, 1e-9}, [&](Wire& wire) {
    std::vector<float>& mine = all[static_cast<std::size_t>(wire.rank())];
    mine = brought(wire.rank(), n);
    body(wire, mine);
  });
  return all;
}

TEST(Collectives, EveryAlgorithmGivesItsOrdersBits) {
  const Call call{1, "bits"};
  int differing = 0;
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
      std::vector<std::vector<float>> parts;
      for (int r = 0; r < ranks; ++r) parts.push_back(brought(r, n));
      tree_sum(parts);
      const std::vector<float>& sum = parts.front();
      const auto pieces = even_pieces(n, ranks);
      const auto spread = [&](Wire& w, std::span<float> v) {
        all_gather_ring(w, call, std::as_writable_bytes(v), in_bytes(pieces));
      };
      const auto direct = after(ranks, n, [&](Wire& w, std::span<float> v) {
        reduce_scatter_direct(w, call, v, pieces);
        spread(w, v);
      });
      const auto tree = after(ranks, n, [&](Wire& w, std::span<float> v) {
        reduce_tree(w, call, v);
        broadcast_tree(w, call, std::as_writable_bytes(v), 0);
      });
      const auto group =
          after(ranks, n, [&](Wire& w, std::span<float> v) { Group(w).all_reduce(v); });
      const auto ring = after(
          ranks, n, [&](Wire& w, std::span<float> v) { Group(w).all_reduce(v, Order::ring); });
      for (const auto* all : {&direct, &tree, &group})
        for (const auto& mine : *all) EXPECT_EQ(mine, sum) << ranks << " ranks";
      for (const auto& mine : ring) EXPECT_EQ(mine, ring.front());
      for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(ring.front()[i], sum[i], 64.0);
      if (ranks > 2 && ring.front() != sum) ++differing;
      if (!std::has_single_bit(static_cast<unsigned>(ranks))) continue;
      const auto doubling =
          after(ranks, n, [&](Wire& w, std::span<float> v) { all_reduce_doubling(w, call, v); });
      const auto halving = after(ranks, n, [&](Wire& w, std::span<float> v) {
        reduce_scatter_halving(w, call, v, pieces);
        all_gather_doubling(w, call, std::as_writable_bytes(v), in_bytes(pieces));
      });
      for (const auto& mine : doubling) EXPECT_EQ(mine, sum);
      for (const auto& mine : halving) EXPECT_EQ(mine, halving.front());
    }
  }
  EXPECT_GE(differing, 7);
}

// What is not summed arrives where it should.
TEST(Collectives, WhatIsNotSummedArrives) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    simulate(ranks, {}, [&](Wire& wire) {
      Group group(wire);
      const int me = group.rank();
      std::vector<std::int32_t> values(static_cast<std::size_t>(2 * ranks));
      std::iota(values.begin(), values.end(), 100 * me);
      group.all_to_all(std::span(values));
      for (int r = 0; r < ranks; ++r)
        for (int i = 0; i < 2; ++i)
          EXPECT_EQ(values[static_cast<std::size_t>(2 * r + i)], 100 * r + 2 * me + i);
      std::vector<double> one{me == ranks - 1 ? 3.5 : 0.0};
      group.broadcast(std::span(one), ranks - 1);
      EXPECT_EQ(one[0], 3.5);
      std::vector<std::int64_t> pieces(10, -1);
      const auto offsets = even_pieces(pieces.size(), ranks);
      for (std::size_t i = offsets[static_cast<std::size_t>(me)];
           i < offsets[static_cast<std::size_t>(me) + 1]; ++i)
        pieces[i] = static_cast<std::int64_t>(i);
      group.all_gather(std::span(pieces));
      for (std::size_t i = 0; i < pieces.size(); ++i)
        EXPECT_EQ(pieces[i], static_cast<std::int64_t>(i));
      const auto texts = group.all_gather(std::string(static_cast<std::size_t>(me), 'x'));
      for (int r = 0; r < ranks; ++r)
        EXPECT_EQ(texts[static_cast<std::size_t>(r)],
                  std::string(static_cast<std::size_t>(r), 'x'));
      group.barrier();
    });
  }
}

TEST(Collectives, CallsThatDifferAreNamed) {
  try {
    simulate(2, {}, [](Wire& wire) {
      Group group(wire);
      std::vector<float> values(4);
      if (wire.rank() == 0)
        group.all_reduce(std::span(values));
      else
        group.broadcast(std::span(values));
    });
    FAIL() << "nobody noticed";
  } catch (const core::Error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("all_reduce f32[4] at"), std::string::npos) << what;
    EXPECT_NE(what.find("broadcast f32[4] at"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace rose::dist
