// Have prompts read elsewhere.

#include "rose/serve/split_backend.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "rose/core/error.h"
#include "rose/core/log.h"
#include "rose/serve/remote_backend.h"

namespace rose::serve {

using Clock = std::chrono::steady_clock;

// Take the detour, or do not.
void SplitBackend::submit_as(Number number, Question question, Listener listener) {
  const infer::KvShape shape = transfer_.shape();
  const auto whole = (static_cast<std::int64_t>(question.prompt.size()) - 1) / shape.page_size;
  const auto nearest = [&]() -> Peer* {
    Peer* best = nullptr;
    for (const auto& peer : peers_)
      if (peer->ready && (best == nullptr || peer->open < best->open)) best = peer.get();
    return best;
  };
  infer::KvTransfer::Room room;
  bool anyone = false;
  {
    const std::scoped_lock lock(mutex_);
    anyone = nearest() != nullptr;
  }
  if (anyone && whole >= options_.least_pages) try {
      room = transfer_.reserve(number, question.prompt, question.adapter, question.salt);
    } catch (const core::Error&) {  // an adapter that does not exist: the engine says so
    }
  if (room.count < options_.least_pages) {
    submit_held(number, std::move(question), std::move(listener));
    if (room.count > 0) transfer_.release(number);
    return;
  }
  std::unique_lock lock(mutex_);
  Peer* peer = nearest();
  if (peer == nullptr) {  // it has gone meanwhile
    lock.unlock();
    transfer_.release(number);
    return submit_held(number, std::move(question), std::move(listener));
  }
  const PrefillCommand command =
      ReadPrompt{.number = number,
                 .shape = shape,
                 .first = room.first,
                 .count = room.count,
                 .deadline_ms = static_cast<std::uint32_t>(options_.deadline.count()),
                 .prompt = question.prompt,
                 .adapter = question.adapter,
                 .salt = question.salt};
  pending_.emplace(number, Pending{.question = std::move(question),
                                   .listener = std::move(listener),
                                   .peer = peer,
                                   .last = Clock::now()});
  ++counts_.asked, ++peer->open;
  peer->outbox->put([&](std::string& out) { encode(command, out); });
}

void SplitBackend::cancel(Number number) {
  happen(number, HandoverEvent::cancelled);
  const std::scoped_lock lock(mutex_);
  jobs_.emplace_back([this, number] { LocalBackend::cancel(number); });
  changed_.notify_all();
}

void SplitBackend::cancel_all() {
  std::vector<Number> numbers;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [number, pending] : pending_) numbers.push_back(number);
  }
  for (const Number number : numbers) happen(number, HandoverEvent::cancelled);
  LocalBackend::cancel_all();
}

// Do what the state machine says.
void SplitBackend::happen(Number number, HandoverEvent event) {
  const std::scoped_lock lock(mutex_);
  const auto found = pending_.find(number);
  if (found == pending_.end()) return;
  Pending& p = found->second;
  const auto before = p.state.state();
  p.last = Clock::now();
  const std::uint8_t actions = p.state.on(event);
  using State = Handover::State;
  const bool travelled = before == State::asked || before == State::filling;
  if (travelled && p.state.state() != State::asked && p.state.state() != State::filling) {
    --p.peer->open;
    if (event == HandoverEvent::complete) ++counts_.moved;
    if (event == HandoverEvent::cancelled) ++counts_.cancelled;
    if ((actions & (submit_question | publish_pages)) == submit_question) ++counts_.fallen_back;
    if (event == HandoverEvent::lost) ++counts_.lost;
  }
  act(number, actions, p);
  if (p.state.state() == State::over) pending_.erase(found);
}

void SplitBackend::act(Number number, std::uint8_t actions, Pending& p) {
  if ((actions & stop_sender) != 0 && p.peer->outbox != nullptr)
    p.peer->outbox->put(
        [&](std::string& out) { encode(PrefillCommand(StopReading{number}), out); });
  if (actions == nothing || actions == stop_sender) return;
  jobs_.push_back([this, number, actions, question = std::move(p.question),
                   listener = (actions & (submit_question | tell_cancelled)) != 0
                                  ? std::move(p.listener)
                                  : Listener()]() mutable {
    if ((actions & publish_pages) != 0) transfer_.publish(number);
    if ((actions & submit_question) != 0) {
      Listener told = std::move(listener);
      if ((actions & publish_pages) != 0)
        told = [hub = hub_, number, told = std::move(told)](const Notice& n) {
          if (n.kind != Notice::Kind::accepted) {
            const std::scoped_lock lock(hub->mutex);
            if (hub->backend != nullptr) hub->backend->happen(number, HandoverEvent::admitted);
          }
          told(n);
        };
      submit_held(number, std::move(question), std::move(told));
    } else if ((actions & tell_cancelled) != 0) {
      listener({.kind = Notice::Kind::accepted});
      for (int c = 0; c < std::max(question.sampling.n, 1); ++c) {
        infer::Event event{.choice = c, .finish = infer::Finish::cancelled};
        event.usage.prompt = static_cast<std::int64_t>(question.prompt.size());
        listener({.kind = Notice::Kind::event, .event = &event});
      }
    }
    if ((actions & release_pages) != 0) transfer_.release(number);
  });
  changed_.notify_all();
}

void SplitBackend::submit_held(Number number, Question question, Listener listener) {
  LocalBackend::submit_as(number, std::move(question), std::move(listener));
}

// Live with an engine that reads.
void SplitBackend::hear(Peer& peer, PrefillReport report) {
  if (const auto* ready = std::get_if<PrefillReady>(&report)) {
    const bool same = ready->shape == transfer_.shape();
    if (!same)
      core::log(core::LogLevel::error,
                "an engine that reads prompts has other pages or weights: it is not used");
    const std::scoped_lock lock(mutex_);
    peer.ready = same;
    changed_.notify_all();
  } else if (const auto* block = std::get_if<PageBlock>(&report)) {
    if (transfer_.write(block->number, {.page = block->page,
                                        .layer = block->layer,
                                        .bytes = std::as_bytes(std::span(block->bytes))}))
      happen(block->number, HandoverEvent::block);
  } else if (const auto* read = std::get_if<PromptRead>(&report)) {
    happen(read->number,
           transfer_.complete(read->number) ? HandoverEvent::complete : HandoverEvent::broken);
  } else {
    happen(std::get<PromptNotRead>(report).number, HandoverEvent::broken);
  }
}

void SplitBackend::live(Peer& peer, int socket) {
  FrameReader frames;
  for (std::string piece; read_some(socket, piece) > 0;) {
    frames.push(piece);
    while (const auto frame = frames.next()) hear(peer, decode_prefill_report(*frame));
  }
}

void SplitBackend::serve_peer(Peer& peer) {
  while (true) {
    pid_t process = 0;
    int socket = -1;
    try {
      socket = peer.connect(process);
      std::unique_lock lock(mutex_);
      peer.socket = socket;
      peer.outbox = std::make_unique<Outbox>(socket);
      if (stopping_) ::shutdown(socket, SHUT_RDWR);
      lock.unlock();
      live(peer, socket);
    } catch (const std::exception& error) {
      core::log(core::LogLevel::error, "an engine that reads prompts: {}", error.what());
    }
    std::vector<Number> orphans;
    std::unique_ptr<Outbox> outbox;
    std::unique_lock lock(mutex_);
    peer.ready = false;
    outbox.swap(peer.outbox);
    peer.socket = -1;
    for (const auto& [number, pending] : pending_)
      if (pending.peer == &peer) orphans.push_back(number);
    lock.unlock();
    outbox.reset();
    for (const Number number : orphans) happen(number, HandoverEvent::lost);
    if (socket >= 0) ::close(socket);
    if (process > 0) reap_process(process, true);
    lock.lock();
    if (changed_.wait_for(lock, options_.restart, [&] { return stopping_; })) return;
  }
}

// Begin, keep time, end.
std::function<int(pid_t&)> prefill_process(std::vector<std::string> command) {
  return [command = std::move(command)](pid_t& process) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw core::Error(core::Code::resource_exhausted, "there is no socket left");
    try {
      process = spawn_with_socket(command, ends[1]);
    } catch (...) {
      ::close(ends[0]), ::close(ends[1]);
      throw;
    }
    ::close(ends[1]);
    return ends[0];
  };
}

SplitBackend::SplitBackend(infer::Engine& engine, const text::Tokenizer& tokenizer,
                           EngineFacts facts, SplitOptions options)
    : LocalBackend(engine, tokenizer, std::move(facts)),
      options_(std::move(options)),
      transfer_(engine) {
  hub_->backend = this;
  for (auto& connect : options_.engines)
    peers_.push_back(std::make_unique<Peer>(Peer{.connect = connect}));
  for (const auto& peer : peers_)
    peer->thread = std::thread([this, p = peer.get()] { serve_peer(*p); });
  clock_ = std::thread([this] { keep_time(); });
  worker_ = std::thread([this] { work(); });
}

void SplitBackend::keep_time() {
  const auto pause = std::min(options_.patience / 4, std::chrono::milliseconds(250));
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [&] { return stopping_; })) {
    std::vector<Number> late;
    for (const auto& [number, p] : pending_)
      if (Clock::now() - p.last > options_.patience) late.push_back(number);
    lock.unlock();
    for (const Number number : late) happen(number, HandoverEvent::late);
    lock.lock();
  }
}

void SplitBackend::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

SplitCounts SplitBackend::counts() const {
  const std::scoped_lock lock(mutex_);
  return counts_;
}

SplitBackend::~SplitBackend() {
  cancel_all();
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    for (const auto& peer : peers_)
      if (peer->socket >= 0) ::shutdown(peer->socket, SHUT_RDWR);
    changed_.notify_all();
  }
  for (const auto& peer : peers_) peer->thread.join();
  clock_.join(), worker_.join();
  const std::scoped_lock lock(hub_->mutex);
  hub_->backend = nullptr;
}

}  // namespace rose::serve
