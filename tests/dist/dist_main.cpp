// One process of a group, for dist_test.py: dist_tool sums | die RANK | hang RANK | differ | version RANK
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/hash.h"
#include "rose/core/rng.h"
#include "rose/dist/collectives.h"
#include "rose/dist/group.h"
#include "rose/dist/world.h"

namespace {

using namespace rose;

std::vector<float> brought(int rank, std::size_t n) {
  core::Rng rng(11, static_cast<std::uint64_t>(rank));
  std::vector<float> values(n);
  for (float& x : values) x = rng.normal() * static_cast<float>(1U << rng.below(20));
  return values;
}

/// Sums of many sizes: each must be the canonical one, and rank 0 prints a hash of them all.
void sums(dist::Group& group) {
  std::vector<std::byte> all;
  for (const std::size_t n : {1UL, 1000UL, 3'000'001UL}) {
    std::vector<float> mine = brought(group.rank(), n);
    group.all_reduce(std::span(mine));
    std::vector<std::vector<float>> parts;
    for (int r = 0; r < group.size(); ++r) parts.push_back(brought(r, n));
    dist::tree_sum(parts);
    if (mine != parts.front())
      throw core::Error(core::Code::internal, fmt::format("the sum of {} differs", n)).in("sums");
    const auto bytes = std::as_bytes(std::span(mine));
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  group.barrier();
  const auto hashes = group.all_gather(fmt::format("{:016x}", core::xxh3(all)));
  for (const std::string& hash : hashes)
    if (hash != hashes.front()) throw core::Error(core::Code::internal, "ranks differ").in("sums");
  if (group.rank() == 0) fmt::print("sums {}\n", hashes.front());
}

/// Sums without end; one rank stops in the middle in the given way.
void endless(dist::Group& group, int who, int signal) {
  std::vector<float> values(2'000'000, 1.0F);
  for (int step = 0;; ++step) {
    if (step == 20 && group.rank() == 0) fmt::print(stderr, "twenty\n");
    if (step == 30 && group.rank() == who) kill(getpid(), signal);
    group.all_reduce(std::span(values));
  }
}

void differ(dist::Group& group) {
  std::vector<float> values(1000);
  group.all_reduce(std::span(values));
  if (group.rank() == group.size() - 1)
    group.broadcast(std::span(values));
  else
    group.all_reduce(std::span(values));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  try {
    const dist::World world = dist::world_from_environment();
    const std::string what = args.empty() ? "sums" : args[0];
    const int who = args.size() > 1 ? std::stoi(args[1]) : -1;
    dist::TcpOptions options;
    options.meeting = std::chrono::seconds(20);
    options.patience = std::chrono::seconds(what == "hang" ? 3 : 60);
    options.agreement = what == "version" && world.rank == who ? "rose 2" : "rose 1";
    dist::TcpWire wire(world, options);
    dist::Group group(wire);
    if (what == "sums" || what == "version") sums(group);
    if (what == "die") endless(group, who, SIGKILL);
    if (what == "hang") endless(group, who, SIGSTOP);
    if (what == "differ") differ(group);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return core::exit_code(error);
  }
  return 0;
}
