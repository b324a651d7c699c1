// Spread questions over engines that remember.

#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "rose/serve/backend.h"

namespace rose::serve {

/// Which engine was sent a text that begins like this one. Forgets the beginnings that were not seen for longest.
class PrefixRoutes {
 public:
  static constexpr std::size_t block = 32;  ///< tokens
  explicit PrefixRoutes(std::size_t most = std::size_t{1} << 16) : most_(most) {}
  std::optional<std::size_t> home(const Question& question);
  void remember(const Question& question, std::size_t replica);
  std::size_t size() const { return where_.size(); }

 private:
  struct Entry {
    std::size_t replica = 0;
    std::list<std::uint64_t>::iterator order;
  };
  std::size_t most_;
  std::list<std::uint64_t> order_;  ///< the last one seen first
  std::unordered_map<std::uint64_t, Entry> where_;
};

// Be one backend of several.
class ReplicaBackend final : public Backend {
 public:
  explicit ReplicaBackend(std::vector<std::unique_ptr<Backend>> replicas, double bound = 1.25);
  Number submit(Question question, Listener listener) override;
  void cancel(Number number) override;
  std::optional<EngineFacts> facts() const override;  ///< pages and seats are the sum
  infer::Statistics statistics() const override;
  void look(Looker told) override;
  void operate(const Operation& operation, Told told) override;  ///< all of them
  std::uint64_t restarts() const override;
  std::size_t ready() const override;
  void stop() override;
  std::vector<int> open() const;  ///< questions of each replica

 private:
  struct Replica {
    std::unique_ptr<Backend> backend;
    std::shared_ptr<std::atomic<int>> open = std::make_shared<std::atomic<int>>(0);
  };
  std::size_t choose(const Question& question);
  std::vector<Replica> replicas_;
  double bound_;
  std::mutex mutex_;
  PrefixRoutes routes_;
  std::size_t turn_ = 0;  ///< among equals
};

}  // namespace rose::serve
