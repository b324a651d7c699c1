// Use an engine of this process.

#include "rose/serve/local_backend.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::serve {

LocalBackend::LocalBackend(infer::Engine& engine, const text::Tokenizer& tokenizer,
                           EngineFacts facts)
    : engine_(engine),
      tokenizer_(tokenizer),
      facts_(std::move(facts)),
      compiler_([this] { compile_all(); }) {
  engine_.start();
}

LocalBackend::~LocalBackend() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    arrived_.notify_all();
  }
  compiler_.join();
  engine_.stop();
}

// Submit now, or after compiling.
Backend::Number LocalBackend::submit(Question question, Listener listener) {
  const Number number = [&] {
    const std::scoped_lock lock(mutex_);
    return ++numbers_;
  }();
  submit_as(number, std::move(question), std::move(listener));
  return number;
}

void LocalBackend::submit_as(Number number, Question question, Listener listener) {
  auto ticket = std::make_shared<Ticket>();
  ticket->listener = std::move(listener);
  ticket->open = std::max(question.sampling.n, 1);
  std::unique_lock lock(mutex_);
  tickets_.emplace(number, ticket);
  if (question.shape.kind == Shape::Kind::free) {
    lock.unlock();
    return hand_over(number, std::move(question), ticket, nullptr);
  }
  jobs_.push_back({number, std::move(question), ticket});
  arrived_.notify_one();
}

// Hand over to the engine; cancel at any moment.
void LocalBackend::hand_over(Number number, Question question,
                             const std::shared_ptr<Ticket>& ticket, Compiled grammar) {
  infer::Request request;
  request.prompt = std::move(question.prompt);
  request.sampling = std::move(question.sampling);
  request.sampling.grammar = std::move(grammar);
  request.pooling = question.pooling;
  request.priority = question.priority;
  request.salt = std::move(question.salt);
  request.adapter = std::move(question.adapter);
  request.on_event = [this, number, ticket](const infer::Event& event) {
    hear(number, *ticket, event);
  };
  try {
    const infer::Engine::Handle handle = engine_.submit(std::move(request));
    bool cancelled = false;
    {
      const std::scoped_lock lock(ticket->mutex);
      ticket->handle = handle;
      cancelled = ticket->cancelled;
      accept(*ticket);
    }
    if (cancelled) engine_.cancel(handle);
  } catch (const core::Error& error) {
    refuse(number, *ticket, error);
  }
}

void LocalBackend::cancel(Number number) {
  std::shared_ptr<Ticket> ticket;
  {
    const std::scoped_lock lock(mutex_);
    const auto found = tickets_.find(number);
    if (found == tickets_.end()) return;
    ticket = found->second;
  }
  const std::scoped_lock lock(ticket->mutex);
  ticket->cancelled = true;
  if (ticket->handle) engine_.cancel(*ticket->handle);
}

void LocalBackend::cancel_all() {
  std::vector<Number> all;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [number, ticket] : tickets_) all.push_back(number);
  }
  for (const Number number : all) cancel(number);
}

// Tell the listener in order.
void LocalBackend::accept(Ticket& ticket) {
  if (std::exchange(ticket.accepted, true)) return;
  ticket.listener({.kind = Notice::Kind::accepted});
}

void LocalBackend::hear(Number number, Ticket& ticket, const infer::Event& event) {
  bool last = false;
  {
    const std::scoped_lock lock(ticket.mutex);
    accept(ticket);
    ticket.listener({.kind = Notice::Kind::event, .event = &event});
    last = event.finish.has_value() && --ticket.open == 0;
  }
  if (last) forget(number);
}

void LocalBackend::refuse(Number number, Ticket& ticket, const core::Error& error) {
  {
    const std::scoped_lock lock(ticket.mutex);
    ticket.listener({.kind = Notice::Kind::refused, .error = &error});
  }
  forget(number);
}

void LocalBackend::forget(Number number) {
  const std::scoped_lock lock(mutex_);
  tickets_.erase(number);
}

// Compile shapes, and keep the last ones.
LocalBackend::Compiled LocalBackend::compile(const Shape& shape) {
  constexpr std::size_t most_kept = 64;
  for (auto i = cache_.begin(); i != cache_.end(); ++i) {
    if (i->first != shape) continue;
    cache_.splice(cache_.begin(), cache_, i);
    return i->second;
  }
  if (!trie_) trie_ = std::make_shared<const infer::TokenTrie>(tokenizer_);
  Compiled made;
  switch (shape.kind) {
    case Shape::Kind::free: return nullptr;
    case Shape::Kind::json_object: made = infer::object_grammar(trie_); break;
    case Shape::Kind::json_schema: made = infer::schema_grammar(shape.text, trie_); break;
    case Shape::Kind::regex: made = infer::regex_grammar(shape.text, trie_); break;
    case Shape::Kind::ebnf: made = infer::ebnf_grammar(shape.text, trie_); break;
  }
  cache_.emplace_front(shape, made);
  if (cache_.size() > most_kept) cache_.pop_back();
  return made;
}

void LocalBackend::compile_all() {
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      if (job.work) {
        job.work();
        lock.lock();
        continue;
      }
      {
        const std::scoped_lock held(job.ticket->mutex);
        if (job.ticket->cancelled)
          throw core::Error(core::Code::cancelled, "nobody waits for the answer");
      }
      auto grammar = compile(job.question.shape);
      hand_over(job.number, std::move(job.question), job.ticket, std::move(grammar));
    } catch (const core::Error& error) {
      core::Error named = error;
      refuse(job.number, *job.ticket, std::move(named).in("response_format"));
    }
    lock.lock();
  }
}

// Do what an operator asks.
std::string LocalBackend::obey(const Operation& operation) {
  infer::Control control = engine_.control();
  switch (operation.kind) {
    case Operation::Kind::load_adapter:
      if (!read_adapter)
        throw core::Error(core::Code::unsupported, "this engine cannot take adapters");
      read_adapter(operation.name, operation.path);
      break;
    case Operation::Kind::unload_adapter: control.unload_adapter(operation.name); break;
    case Operation::Kind::start_profile: control.start_profile(); break;
    case Operation::Kind::stop_profile: {
      const std::string trace = control.stop_profile();
      const auto now = std::chrono::system_clock::now().time_since_epoch();
      const auto file =
          std::filesystem::path(operation.path) /
          fmt::format("engine-{}-{}.json", getpid(),
                      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
      std::filesystem::create_directories(file.parent_path());
      core::write_file_atomic(file, trace);
      return file.string();
    }
  }
  return "";
}

void LocalBackend::operate(const Operation& operation, Told told) {
  const std::scoped_lock lock(mutex_);
  jobs_.push_back({.work = [this, operation, told = std::move(told)] {
    Outcome outcome;
    try {
      outcome.said = obey(operation);
    } catch (const core::Error& error) {
      outcome.error = error;
    } catch (const std::exception& error) {
      outcome.error = core::Error(core::Code::io, error.what());
    }
    told({outcome});
  }});
  arrived_.notify_one();
}

}  // namespace rose::serve
