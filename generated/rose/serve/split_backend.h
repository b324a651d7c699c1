// Have prompts read elsewhere.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>

#include "rose/infer/kv_transfer.h"
#include "rose/serve/handover.h"
#include "rose/serve/local_backend.h"
#include "rose/serve/outbox.h"
#include "rose/serve/prefill_messages.h"

namespace rose::serve {

struct SplitOptions {
  /// One for each engine that reads prompts: gives a socket to it, and its process if it is ours. Called again after it was lost.
  std::vector<std::function<int(pid_t& process)>> engines;
  std::int32_t least_pages = 8;                ///< fewer are read here
  std::chrono::milliseconds patience{10'000};  ///< without a block; then the prompt is read here
  std::chrono::milliseconds deadline{60'000};  ///< of the whole transfer, for the engine that reads
  std::chrono::milliseconds restart{500};      ///< before a lost engine is asked for again
};

/// A command that is started with a socket, as for SplitOptions::engines.
std::function<int(pid_t&)> prefill_process(std::vector<std::string> command);

struct SplitCounts {
  std::int64_t asked = 0, moved = 0 /* pages came from elsewhere */, fallen_back = 0, cancelled = 0,
               lost = 0;
};

class SplitBackend final : public LocalBackend {
 public:
  SplitBackend(infer::Engine& engine, const text::Tokenizer& tokenizer, EngineFacts facts,
               SplitOptions options);
  ~SplitBackend() override;
  void submit_as(Number number, Question question, Listener listener) override;
  void cancel(Number number) override;
  void cancel_all() override;
  SplitCounts counts() const;
  std::int64_t reserved_pages() const { return transfer_.reserved(); }

 private:
  struct Peer {
    std::function<int(pid_t&)> connect;
    std::unique_ptr<Outbox> outbox{};  ///< null: there is none at the moment
    bool ready = false;
    int socket = -1;
    std::size_t open = 0;  ///< handovers
    std::thread thread{};
  };
  struct Pending {
    Handover state{false};
    Question question;
    Listener listener;
    Peer* peer = nullptr;
    std::chrono::steady_clock::time_point last;
  };
  /// What listeners hold: they may be called when the backend is going.
  struct Hub {
    std::mutex mutex;
    SplitBackend* backend = nullptr;
  };
  void happen(Number number, HandoverEvent event);
  void act(Number number, std::uint8_t actions, Pending& pending);
  void submit_held(Number number, Question question, Listener listener);
  void serve_peer(Peer& peer);
  void live(Peer& peer, int socket);
  void hear(Peer& peer, PrefillReport report);
  void keep_time();
  void work();

  SplitOptions options_;
  infer::KvTransfer transfer_;
  std::shared_ptr<Hub> hub_ = std::make_shared<Hub>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::map<Number, Pending> pending_;
  SplitCounts counts_;
  std::deque<std::function<void()>> jobs_;  ///< what must not be done on the engine's threads
  std::thread clock_, worker_;
};

}  // namespace rose::serve
