// A wire whose time is arithmetic.

#include "rose/dist/simulated_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace rose::dist {

namespace {

struct Message {
  Call call;
  std::vector<std::byte> bytes;
  double arrives = 0;
};

/// What all ranks share.
struct Network {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Message>> under_way;  // from, to
  std::optional<core::Error> broken;
};

// Send into a queue, with the time of arrival.
class SimulatedWire final : public Wire {
 public:
  SimulatedWire(Network& network, WireCost cost, int rank, int size)
      : network_(network), cost_(cost), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  double clock() const { return clock_; }
  double bytes_sent() const { return bytes_sent_; }

  void transfer(const Call& call, std::span<const Outgoing> out,
                std::span<const Incoming> in) override {
    std::unique_lock lock(network_.mutex);
    double done = clock_;
    for (const Outgoing& o : out) {
      done += cost_.of(static_cast<double>(o.bytes.size()));
      bytes_sent_ += static_cast<double>(o.bytes.size());
      network_.under_way[{rank_, o.to}].push_back({call, {o.bytes.begin(), o.bytes.end()}, done});
    }
    network_.changed.notify_all();
    for (const Incoming& i : in) {
      std::deque<Message>& from = network_.under_way[{i.from, rank_}];
      network_.changed.wait(lock, [&] { return !from.empty() || network_.broken; });
      if (network_.broken) throw core::Error(*network_.broken);
      take(from.front(), call, i);
      done = std::max(done, from.front().arrives);
      from.pop_front();
    }
    clock_ = done;
  }

  void abort(const core::Error& error) noexcept override {
    const std::lock_guard lock(network_.mutex);
    if (!network_.broken) network_.broken = error;
    network_.changed.notify_all();
  }

 private:
  void take(const Message& message, const Call& call, const Incoming& to) const {
    if (message.call.number != call.number || message.call.what != call.what ||
        message.bytes.size() != to.bytes.size())
      throw core::Error(core::Code::internal,
                        fmt::format("rank {} calls {}, rank {} calls {}", rank_, call.what, to.from,
                                    message.call.what))
          .in("collective");
    std::ranges::copy(message.bytes, to.bytes.begin());
  }

  Network& network_;
  WireCost cost_;
  int rank_, size_;
  double clock_ = 0, bytes_sent_ = 0;
};

}  // namespace

// Run a thread for each rank.
double SimulatedRun::seconds() const {
  return *std::ranges::max_element(clocks);
}

SimulatedRun simulate(int size, WireCost cost, const std::function<void(Wire&)>& body) {
  Network network;
  SimulatedRun run;
  run.clocks.resize(static_cast<std::size_t>(size));
  run.bytes_sent.resize(run.clocks.size());
  std::vector<std::thread> threads;
  threads.reserve(run.clocks.size());
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      SimulatedWire wire(network, cost, r, size);
      try {
        body(wire);
      } catch (const core::Error& error) {
        wire.abort(error);
      }
      run.clocks[static_cast<std::size_t>(r)] = wire.clock();
      run.bytes_sent[static_cast<std::size_t>(r)] = wire.bytes_sent();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (network.broken) throw core::Error(*network.broken);
  return run;
}

}  // namespace rose::dist
