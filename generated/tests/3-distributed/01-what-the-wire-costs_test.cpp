// Tests of the chapter "What the wire costs".

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
#include "rose/dist/cost.h"
#include "rose/dist/socket.h"
#include "rose/dist/tcp_wire.h"
#include "rose/dist/wire.h"
#include "rose/dist/world.h"

namespace rose::dist {
namespace {

// The line is found, through noise too.
TEST(WireCost, TheLineIsFound) {
  const WireCost truth{5e-6, 1 / 50e9};
  core::Rng rng(3);
  std::vector<TimedMessage> exact, noisy;
  for (double n = 1; n < 1e9; n *= 4) {
    exact.push_back({n, truth.of(n)});
    noisy.push_back({n, truth.of(n) * (0.95 + 0.1 * rng.uniform64())});
  }
  EXPECT_NEAR(fit(exact).alpha / truth.alpha, 1, 1e-9);
  EXPECT_NEAR(fit(exact).beta / truth.beta, 1, 1e-9);
  EXPECT_NEAR(fit(noisy).alpha / truth.alpha, 1, 0.05);
  EXPECT_NEAR(fit(noisy).beta / truth.beta, 1, 0.05);
  EXPECT_NEAR(truth.half_size(), 250e3, 1e-6);
  EXPECT_DOUBLE_EQ(truth.of(truth.half_size()), 2 * truth.alpha);
  EXPECT_THROW(fit(std::span(exact).first(1)), core::Error);
  labs::write_value("wire-cost-test", "kilobytes", truth.half_size() / 1e3);
}

// Every launcher's words are understood, and contradictions named.

/// Sets variables for a scope.
class Environment {
 public:
  Environment(std::initializer_list<std::pair<const char*, const char*>> values) : values_(values) {
    for (const auto& [name, value] : values_) setenv(name, value, 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : values_) unsetenv(name);
  }

 private:
  std::vector<std::pair<const char*, const char*>> values_;
};

std::string world_error() {
  try {
    world_from_environment();
  } catch (const core::Error& error) {
    return error.argument() + ": " + error.message();
  }
  return "";
}

TEST(World, EveryLauncherIsUnderstood) {
  EXPECT_EQ(world_from_environment().size, 1);
  {
    const Environment torch{{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "node0"},
                            {"MASTER_PORT", "1234"}};
    const World world = world_from_environment();
    EXPECT_EQ(world.rank, 5);
    EXPECT_EQ(world.size, 8);
    EXPECT_EQ(world.local_rank, 1);
    EXPECT_EQ(world.master_addr, "node0");
    EXPECT_EQ(world.master_port, 1234);
  }
  {
    const Environment mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "2"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}};
    EXPECT_EQ(world_from_environment().rank, 1);
    EXPECT_EQ(world_from_environment().local_rank, 0);
  }
  const Environment slurm{{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_EQ(world_from_environment().rank, 3);
}

TEST(World, ContradictionsAreNamed) {
  {
    const Environment half{{"RANK", "1"}};
    EXPECT_EQ(world_error(), "WORLD_SIZE: it is not set, and RANK is");
  }
  {
    const Environment beyond{{"RANK", "2"}, {"WORLD_SIZE", "2"}};
    EXPECT_EQ(world_error(), "RANK: rank 2 of 2: ranks count from 0");
  }
  {
    const Environment word{{"RANK", "one"}, {"WORLD_SIZE", "2"}};
    EXPECT_EQ(world_error(), "RANK: \"one\" is no number of a process");
  }
  const Environment port{{"MASTER_PORT", "70000"}};
  EXPECT_EQ(world_error(), "MASTER_PORT: 70000 is no port");
}

// Ranks that are threads.
std::uint16_t some_port() {
  return listen_at(0).port();
}

/// Runs body(wire) on a thread for each rank; returns what each threw, or "".
std::vector<std::string> on_ranks(int n, const std::function<void(TcpWire&)>& body,
                                  TcpOptions options = {}) {
  std::vector<std::string> errors(static_cast<std::size_t>(n));
  std::vector<std::thread> threads;
  const std::uint16_t port = some_port();
  for (int r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      try {
        TcpWire wire({.rank = r, .size = n, .master_port = port}, options);
        body(wire);
      } catch (const core::Error& error) {
        errors[static_cast<std::size_t>(r)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Large messages around a ring, early ones, empty ones.
TEST(TcpWire, MovesMessagesOfEverySizeAtOnce) {
  const auto errors = on_ranks(3, [](TcpWire& wire) {
    const int n = wire.size(), next = (wire.rank() + 1) % n, before = (wire.rank() + n - 1) % n;
    std::uint64_t number = 0;
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{5'000'000}}) {
      std::vector<std::byte> mine(size, static_cast<std::byte>(wire.rank())), theirs(size);
      const Outgoing out{next, mine};
      const Incoming in{before, theirs};
      wire.transfer({++number, "ring"}, std::span(&out, 1), std::span(&in, 1));
      EXPECT_EQ(theirs, std::vector<std::byte>(size, static_cast<std::byte>(before)));
    }
    // rank 0 sends and is done; the others take it later, and talk to each other first
    std::vector<std::byte> words(100, static_cast<std::byte>(9)), got(100);
    for (int r = 1; r < n; ++r) {
      const Outgoing out{r, words};
      const Incoming in{0, got};
      if (wire.rank() == 0) wire.transfer({number + 1, "early"}, std::span(&out, 1), {});
      if (wire.rank() == r) wire.transfer({number + 1, "early"}, {}, std::span(&in, 1));
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST(TcpWire, DifferentCallsAreNamedOnBothSides) {
  const auto errors = on_ranks(2, [](TcpWire& wire) {
    std::vector<std::byte> mine(8), theirs(8);
    const Outgoing out{1 - wire.rank(), mine};
    const Incoming in{1 - wire.rank(), theirs};
    const Call call{1, wire.rank() == 0 ? "sum at a.cpp:1" : "copy at b.cpp:2"};
    wire.transfer(call, std::span(&out, 1), std::span(&in, 1));
  });
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("sum at a.cpp:1"), std::string::npos) << error;
    EXPECT_NE(error.find("copy at b.cpp:2"), std::string::npos) << error;
  }
}

TEST(TcpWire, WhoDoesNotComeIsNamed) {
  TcpOptions options;
  options.patience = std::chrono::milliseconds(300);
  std::atomic<int> done = 0;
  const auto errors = on_ranks(
      3,
      [&](TcpWire& wire) {
        if (wire.rank() == 2) {  // hangs
          while (done < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          return;
        }
        const int from = 1 + wire.rank();  // rank 0 waits for 1, which waits for 2
        std::vector<std::byte> bytes(4);
        const Incoming in{from, bytes};
        try {
          wire.transfer({7, "wait at c.cpp:3"}, {}, std::span(&in, 1));
        } catch (const core::Error&) {
          ++done;
          throw;
        }
      },
      options);
  for (const int r : {0, 1}) {
    const std::string& error = errors[static_cast<std::size_t>(r)];
    EXPECT_NE(error.find("wait at c.cpp:3"), std::string::npos) << error;
    EXPECT_NE(error.find("missing: rank 2"), std::string::npos) << error;
  }
}

// Who may not join is told why, and everybody with them.
std::vector<std::string> meet_as(const std::vector<World>& worlds,
                                 const std::vector<std::string>& agreements) {
  std::vector<std::string> errors(worlds.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    threads.emplace_back([&, i] {
      TcpOptions options{.meeting = std::chrono::milliseconds(1500)};
      options.agreement = agreements[i];
      try {
        const TcpWire wire(worlds[i], options);
      } catch (const core::Error& error) {
        errors[i] = error.message();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(TcpWire, WhoMayNotJoinIsToldWhy) {
  const std::uint16_t port = some_port();
  const auto world = [&](int rank, int size) {
    return World{.rank = rank, .size = size, .master_port = port};
  };
  const auto versions = meet_as({world(0, 2), world(1, 2)}, {"rose 1", "rose 2"});
  for (const std::string& error : versions)
    EXPECT_EQ(error, "rank 1 runs \"rose 2\", rank 0 runs \"rose 1\"");
  const auto sizes = meet_as({world(0, 2), world(1, 3)}, {"", ""});
  for (const std::string& error : sizes)
    EXPECT_EQ(error, "rank 1 counts 3 processes, rank 0 counts 2");
  const auto twice = meet_as({world(0, 3), world(1, 3), world(1, 3)}, {"", "", ""});
  EXPECT_EQ(twice[0], "rank 1 came twice");
  const auto alone = meet_as({world(0, 2)}, {""});
  EXPECT_EQ(alone[0], "rank 1 did not come within 1.5 s");
  const Socket taken = listen_at(0);
  const auto used = meet_as({World{.rank = 0, .size = 2, .master_port = taken.port()}}, {""});
  EXPECT_EQ(used[0], fmt::format("port {} is in use", taken.port()));
}

}  // namespace
}  // namespace rose::dist
