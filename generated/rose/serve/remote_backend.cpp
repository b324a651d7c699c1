// Use an engine of another process.

#include "rose/serve/remote_backend.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "rose/core/error.h"
#include "rose/core/log.h"

namespace rose::serve {

using Clock = std::chrono::steady_clock;

namespace {

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("the engine was ended by signal {}", WTERMSIG(status));
  return fmt::format("the engine ended with status {}", WEXITSTATUS(status));
}

}  // namespace

// Submit and cancel.
Backend::Number RemoteBackend::submit(Question question, Listener listener) {
  std::unique_lock lock(mutex_);
  if (!facts_) {
    const core::Error error(core::Code::io, failure_);
    lock.unlock();
    listener({.kind = Notice::Kind::lost, .error = &error});
    return 0;
  }
  const Number number = ++numbers_;
  auto waiting = std::make_shared<Waiting>();
  waiting->listener = std::move(listener);
  waiting->open = std::max(question.sampling.n, 1);
  waiting_.emplace(number, std::move(waiting));
  const Command command = Submit{number, std::move(question)};
  outbox_->put([&](std::string& out) { encode(command, out); });
  return number;
}

void RemoteBackend::cancel(Number number) {
  const std::scoped_lock lock(mutex_);
  if (!outbox_ || !waiting_.contains(number)) return;
  outbox_->put([&](std::string& out) { encode(Command(Cancel{number}), out); });
}

std::optional<EngineFacts> RemoteBackend::facts() const {
  const std::scoped_lock lock(mutex_);
  return facts_;
}

infer::Statistics RemoteBackend::statistics() const {
  const std::scoped_lock lock(mutex_);
  return statistics_;
}

void RemoteBackend::look(Looker told) {
  std::unique_lock lock(mutex_);
  if (!facts_) {
    lock.unlock();
    return told({});
  }
  lookers_.push_back(std::move(told));
  outbox_->put([](std::string& out) { encode(Command(Look{}), out); });
}

std::string RemoteBackend::last_failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

// Pass reports on.
void RemoteBackend::hear(Report report) {
  const auto find = [&](Number number, bool last) {
    const std::scoped_lock lock(mutex_);
    const auto found = waiting_.find(number);
    std::shared_ptr<Waiting> out;
    if (found == waiting_.end()) return out;
    out = found->second;
    if (last && --out->open <= 0) waiting_.erase(found);
    return out;
  };
  if (auto* ready = std::get_if<Ready>(&report)) {
    if (ready->version != wire_version)
      throw core::Error(
          core::Code::unsupported,
          fmt::format("the engine speaks version {}, this front {}", ready->version, wire_version));
    become_ready(std::move(ready->facts));
  } else if (const auto* counts = std::get_if<Counts>(&report)) {
    const std::scoped_lock lock(mutex_);
    statistics_ = counts->statistics;
  } else if (const auto* operated = std::get_if<Operated>(&report)) {
    finish(*operated);
  } else if (auto* seen = std::get_if<Seen>(&report)) {
    std::unique_lock lock(mutex_);
    if (lookers_.empty()) return;
    const Looker told = std::move(lookers_.front());
    lookers_.pop_front();
    lock.unlock();
    told({std::move(seen->view)});
  } else if (const auto* accepted = std::get_if<Accepted>(&report)) {
    if (const auto to = find(accepted->number, false))
      to->listener({.kind = Notice::Kind::accepted});
  } else if (const auto* refused = std::get_if<Refused>(&report)) {
    const auto to = find(refused->number, false);
    if (!to) return;
    {
      const std::scoped_lock lock(mutex_);
      waiting_.erase(refused->number);
    }
    core::Error error(refused->code, refused->message);
    error = std::move(error).in(refused->argument).hint(refused->hint);
    to->listener({.kind = Notice::Kind::refused, .error = &error});
  } else if (const auto* happened = std::get_if<Happened>(&report)) {
    const auto to = find(happened->number, happened->finish > 0);
    if (!to) return;
    const core::Error error(core::Code::internal, happened->error);
    const infer::Event event = happened->event(happened->error.empty() ? nullptr : &error);
    to->listener({.kind = Notice::Kind::event, .event = &event});
  }
}

void RemoteBackend::lose_all(const std::string& why) {
  std::unordered_map<Number, std::shared_ptr<Waiting>> lost;
  std::deque<Looker> lookers;
  std::unordered_map<Number, Underway> underway;
  std::unique_ptr<Outbox> outbox;
  {
    const std::scoped_lock lock(mutex_);
    lost.swap(waiting_);
    lookers.swap(lookers_);
    underway.swap(underway_);
    coming_.reset();
    outbox.swap(outbox_);
    facts_.reset();
    statistics_.running = statistics_.waiting = 0;
    failure_ = why;
    socket_ = -1;
  }
  const core::Error error(core::Code::io, why);
  for (const auto& [number, waiting] : lost)
    waiting->listener({.kind = Notice::Kind::lost, .error = &error});
  for (const Looker& told : lookers) told({});
  for (const auto& [number, one] : underway)
    if (one.told) one.told({{.error = error}});
}

// Operate the engine, and its successors.
void RemoteBackend::order(const Operation& operation, Told told) {
  const Number number = ++numbers_;
  underway_.emplace(number, Underway{operation, std::move(told)});
  outbox_->put([&](std::string& out) { encode(Command(Operate{number, operation}), out); });
}

void RemoteBackend::operate(const Operation& operation, Told told) {
  std::unique_lock lock(mutex_);
  if (facts_) return order(operation, std::move(told));
  const core::Error error(core::Code::io, failure_);
  lock.unlock();
  told({{.error = error}});
}

void RemoteBackend::become_ready(EngineFacts facts) {
  const std::scoped_lock lock(mutex_);
  failure_.clear();
  if (adapters_.empty()) {
    facts_ = std::move(facts);
    return;
  }
  failure_ = "the engine is loading adapters";
  coming_ = std::move(facts);
  loading_ = adapters_.size();
  for (const Operation& adapter : adapters_) order(adapter, nullptr);
}

void RemoteBackend::finish(const Operated& report) {
  std::unique_lock lock(mutex_);
  const auto found = underway_.find(report.number);
  if (found == underway_.end()) return;
  const Underway one = std::move(found->second);
  underway_.erase(found);
  Outcome outcome{.said = report.said};
  if (report.failed) {
    core::Error error(report.code, report.message);
    outcome.error = std::move(error).in(report.argument).hint(report.hint);
    core::log(core::LogLevel::warning, "{}: {}", one.operation.name, report.message);
  } else if (one.operation.kind == Operation::Kind::unload_adapter) {
    std::erase_if(adapters_, [&](const Operation& a) { return a.name == one.operation.name; });
  } else if (one.operation.kind == Operation::Kind::load_adapter && one.told) {
    adapters_.push_back(one.operation);
  }
  if (!one.told && --loading_ == 0 && coming_) {
    facts_ = std::exchange(coming_, std::nullopt);
    failure_.clear();
  }
  lock.unlock();
  if (one.told) one.told({outcome});
}

// Start, read, mourn, start again.
void RemoteBackend::live(int socket) {
  const auto start = Clock::now();
  FrameReader frames;
  pollfd wait{socket, POLLIN, 0};
  bool is_ready = false;
  while (true) {
    const auto limit = is_ready ? options_.silence : options_.ready;
    const int n = poll(&wait, 1, static_cast<int>(limit.count()));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0)
      throw core::Error(core::Code::io,
                        fmt::format("the engine has said nothing for {} s", limit.count() / 1000));
    std::string piece;
    if (read_some(socket, piece) == 0) return;
    frames.push(piece);
    while (const auto frame = frames.next()) {
      Report report = decode_report(*frame);
      if (std::holds_alternative<Ready>(report) && !is_ready) {
        is_ready = true;
        core::log(core::LogLevel::info, "engine ready after {:.1f} s",
                  std::chrono::duration<double>(Clock::now() - start).count());
      }
      hear(std::move(report));
    }
  }
}

// From the start of one process to its end; says how it ended.
std::string RemoteBackend::one_life() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return "there is no socket left";
  pid_t child = 0;
  std::string why;
  try {
    child = spawn_with_socket(options_.command, ends[1]);
    ::close(ends[1]);
    ends[1] = -1;
    process_ = child;
    {
      const std::scoped_lock lock(mutex_);
      socket_ = ends[0];
      outbox_ = std::make_unique<Outbox>(ends[0]);
      outbox_->put([](std::string& out) { encode(Command(Hello{}), out); });
      if (stopping_) ::shutdown(socket_, SHUT_RDWR);
    }
    live(ends[0]);
  } catch (const std::exception& error) {
    why = error.what();
  }
  if (ends[1] >= 0) ::close(ends[1]);
  ::shutdown(ends[0], SHUT_RDWR);
  if (child > 0) {
    const int status = reap_process(child, why.empty());
    if (why.empty()) why = how_it_ended(status);
  }
  process_ = 0;
  lose_all(why);
  ::close(ends[0]);
  return why;
}

// Live again and again.
void RemoteBackend::supervise() {
  auto wait = options_.first_wait;
  while (true) {
    const auto start = Clock::now();
    const std::string why = one_life();
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    core::log(core::LogLevel::error, "{}; it is started again in {} ms", why, wait.count());
    if (stop_.wait_for(lock, wait, [&] { return stopping_; })) return;
    lock.unlock();
    ++restarts_;
    wait = Clock::now() - start > options_.credit ? options_.first_wait
                                                  : std::min(wait * 2, options_.longest_wait);
  }
}

RemoteBackend::RemoteBackend(RemoteOptions options)
    : options_(std::move(options)),
      adapters_(options_.first),
      supervisor_([this] { supervise(); }) {}

RemoteBackend::~RemoteBackend() {
  stop();
}

void RemoteBackend::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
    stop_.notify_all();
  }
  if (supervisor_.joinable()) supervisor_.join();
}

}  // namespace rose::serve
