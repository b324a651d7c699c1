// Read prompts for another engine.

#include "rose/serve/prefill_server.h"

#include <fmt/format.h>

#include <chrono>
#include <unordered_map>

#include "rose/core/error.h"
#include "rose/serve/outbox.h"
#include "rose/serve/prefill_messages.h"

namespace rose::serve {
namespace {

using Clock = std::chrono::steady_clock;

class PrefillSession {
 public:
  PrefillSession(int socket, infer::Engine& engine)
      : socket_(socket),
        engine_(engine),
        transfer_(engine),
        outbox_(std::make_shared<Outbox>(socket)),
        clock_([this] { watch_deadlines(); }) {}
  ~PrefillSession();
  void run();

 private:
  struct Job {
    std::optional<infer::Engine::Handle> handle{};
    Clock::time_point deadline;
    bool stopped = false;
  };
  static std::string id_of(std::uint64_t number) { return fmt::format("kv-{}", number); }
  void read(ReadPrompt command);
  void stop(std::uint64_t number);
  void over(std::uint64_t number, const std::string& why);
  void watch_deadlines();

  int socket_;
  infer::Engine& engine_;
  infer::KvTransfer transfer_;
  std::shared_ptr<Outbox> outbox_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ending_ = false;
  std::unordered_map<std::uint64_t, Job> jobs_;
  std::thread clock_;
};

// Read, stop, keep deadlines.
void PrefillSession::run() {
  outbox_->put(
      [&](std::string& out) { encode(PrefillReport(PrefillReady{transfer_.shape()}), out); });
  FrameReader frames;
  for (std::string piece; read_some(socket_, piece) > 0;) {
    frames.push(piece);
    while (const auto frame = frames.next()) {
      PrefillCommand command = decode_prefill_command(*frame);
      if (auto* prompt = std::get_if<ReadPrompt>(&command))
        read(std::move(*prompt));
      else
        stop(std::get<StopReading>(command).number);
    }
  }
}

void PrefillSession::read(ReadPrompt c) {
  {
    const std::scoped_lock lock(mutex_);
    jobs_[c.number] = {.deadline = Clock::now() + std::chrono::milliseconds(c.deadline_ms)};
  }
  if (c.shape != transfer_.shape())
    return over(c.number, "the engines do not have the same pages or weights");
  transfer_.send(id_of(c.number), c.first, c.count,
                 [out = outbox_, n = c.number](const infer::KvBlock& block) {
                   out->put([&](std::string& bytes) { encode_block(n, block, bytes); });
                 });
  infer::Request request;
  request.id = id_of(c.number);
  request.prompt = std::move(c.prompt);
  request.adapter = std::move(c.adapter), request.salt = std::move(c.salt);
  request.text = false;
  request.sampling.max_tokens = 1, request.sampling.temperature = 0.0f;
  request.sampling.ignore_eos = true;
  request.on_event = [this, n = c.number](const infer::Event& e) {
    if (!e.finish) return;
    const bool well = *e.finish == infer::Finish::length || *e.finish == infer::Finish::stop;
    over(n, well ? "" : e.error != nullptr ? e.error->what() : "it was cancelled");
  };
  try {
    const auto handle = engine_.submit(std::move(request));
    const std::scoped_lock lock(mutex_);
    const auto job = jobs_.find(c.number);
    if (job == jobs_.end()) return;  // it is over already
    job->second.handle = handle;
    if (job->second.stopped) engine_.cancel(handle);
  } catch (const core::Error& error) {
    over(c.number, error.what());
  }
}

void PrefillSession::over(std::uint64_t number, const std::string& why) {
  transfer_.stop(id_of(number));
  outbox_->put([&](std::string& out) {
    if (why.empty())
      encode(PrefillReport(PromptRead{number}), out);
    else
      encode(PrefillReport(PromptNotRead{number, why}), out);
  });
  const std::scoped_lock lock(mutex_);  // last: the session may end as soon as no job is left
  jobs_.erase(number);
  ended_.notify_all();
}

void PrefillSession::stop(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  const auto job = jobs_.find(number);
  if (job == jobs_.end()) return;
  job->second.stopped = true;
  if (job->second.handle) engine_.cancel(*job->second.handle);
}

void PrefillSession::watch_deadlines() {
  constexpr std::chrono::milliseconds pause(20);
  std::unique_lock lock(mutex_);
  while (!ending_) {
    for (auto& [number, job] : jobs_)
      if (job.handle && Clock::now() > job.deadline) engine_.cancel(*job.handle);
    ended_.wait_for(lock, pause);
  }
}

PrefillSession::~PrefillSession() {
  std::unique_lock lock(mutex_);
  for (auto& [number, job] : jobs_) {
    job.stopped = true;
    if (job.handle) engine_.cancel(*job.handle);
  }
  ended_.wait(lock, [&] { return jobs_.empty(); });  // no event comes after this
  ending_ = true;
  ended_.notify_all();
  lock.unlock();
  clock_.join();
}

}  // namespace

void serve_prefill(int socket, infer::Engine& engine) {
  PrefillSession(socket, engine).run();
}

}  // namespace rose::serve
