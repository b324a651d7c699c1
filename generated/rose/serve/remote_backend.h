// Use an engine of another process.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "rose/serve/backend.h"
#include "rose/serve/messages.h"
#include "rose/serve/outbox.h"
#include "rose/serve/spawn.h"

namespace rose::serve {

struct RemoteOptions {
  std::vector<std::string>
      command;  ///< program and arguments; "{socket}" becomes the descriptor's number
  std::chrono::milliseconds ready{900'000};   ///< for the weights to load
  std::chrono::milliseconds silence{60'000};  ///< an engine that says nothing for so long is killed
  std::chrono::milliseconds first_wait{500}, longest_wait{30'000}, credit{60'000};
  std::vector<Operation> first{};  ///< adapters that every engine loads before it is ready
};

class RemoteBackend final : public Backend {
 public:
  explicit RemoteBackend(RemoteOptions options);
  RemoteBackend(const RemoteBackend&) = delete;
  RemoteBackend& operator=(const RemoteBackend&) = delete;
  ~RemoteBackend() override;  ///< stops
  void stop() override;       ///< ends the engine, too

  Number submit(Question question, Listener listener) override;
  void cancel(Number number) override;
  std::optional<EngineFacts> facts() const override;
  infer::Statistics statistics() const override;
  void look(Looker told) override;
  void operate(const Operation& operation, Told told) override;
  std::uint64_t restarts() const override { return restarts_; }
  pid_t process() const { return process_; }  ///< 0: none at the moment
  std::string last_failure() const;

 private:
  struct Waiting {
    Listener listener;
    int open = 1;
  };
  void supervise();
  std::string one_life();
  void live(int socket);
  void hear(Report report);
  void lose_all(const std::string& why);

  RemoteOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::unordered_map<Number, std::shared_ptr<Waiting>> waiting_;
  struct Underway {
    Operation operation;
    Told told;
  };
  void become_ready(EngineFacts facts);
  void order(const Operation& operation, Told told);  ///< locked
  void finish(const Operated& report);
  std::deque<Looker> lookers_;  ///< each is owed a view
  std::unordered_map<Number, Underway> underway_;
  std::vector<Operation> adapters_;    ///< that are loaded, and that the next engine loads
  std::optional<EngineFacts> coming_;  ///< of an engine that is loading them
  std::size_t loading_ = 0;
  Number numbers_ = 0;
  std::unique_ptr<Outbox> outbox_;
  std::optional<EngineFacts> facts_;
  infer::Statistics statistics_;
  std::string failure_ = "the engine is starting";
  std::atomic<std::uint64_t> restarts_{0};
  std::atomic<pid_t> process_{0};
  int socket_ = -1;
  std::thread supervisor_;
};

}  // namespace rose::serve
