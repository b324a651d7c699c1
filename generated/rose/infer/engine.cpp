// Accept requests, and take steps.

#include "rose/infer/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"
#include "rose/infer/engine_state.h"
#include "rose/model/weights.h"

namespace rose::infer {

// Put the parts together.
namespace {

SchedulerLimits scheduler_limits(const EngineOptions& o, const RunnerLimits& r) {
  const auto smaller = [](std::int64_t asked, std::int64_t most) {
    return asked > 0 ? std::min(asked, most) : most;
  };
  return {.tokens = smaller(o.max_num_batched_tokens, r.tokens),
          .sequences = smaller(o.max_num_seqs, r.sequences),
          .rows = r.rows,
          .chunk = o.max_chunk,
          .page_size = r.page_size,
          .policy = o.policy,
          .look_ahead = o.look_ahead,
          .patience = o.patience};
}

}  // namespace

Engine::State::State(std::unique_ptr<Runner> r, const EngineOptions& o,
                     std::optional<text::Tokenizer> t)
    : options(o),
      runner(std::move(r)),
      tokenizer(std::move(t)),
      eos(runner->weights()->config().eos_ids),
      pool(runner->limits().pages),
      cache(pool, runner->limits().page_size),
      limits(scheduler_limits(o, runner->limits())),
      scheduler(limits, pool, cache),
      overlap(o.overlap.value_or(runner->limits().asynchronous)),
      delivery([this](Handle handle, int choice, Finish finish) {
        const std::scoped_lock lock(inbox_mutex);
        inbox.push_back({nullptr, handle, choice, finish});
        inbox_filled.notify_one();
      }) {
  if (options.stall_seconds > 0) watchman = std::thread([this] { watch(); });
}

Engine::Engine(std::unique_ptr<Runner> runner, const EngineOptions& options,
               std::optional<text::Tokenizer> tokenizer)
    : state_(std::make_unique<State>(std::move(runner), options, std::move(tokenizer))) {}

Engine::~Engine() {
  {
    const std::scoped_lock lock(state_->inbox_mutex);
    state_->nothing_to_prepare = true;
    state_->prepare_filled.notify_one();
  }
  if (state_->preparer.joinable()) state_->preparer.join();
  stop();
  {
    const std::scoped_lock lock(state_->watch_mutex);
    state_->nothing_to_watch = true;
    state_->watch_ends.notify_one();
  }
  if (state_->watchman.joinable()) state_->watchman.join();
  {
    const std::scoped_lock lock(state_->step_mutex);
    state_->take_mail();
    try {
      state_->settle();
    } catch (const std::exception& error) {
      state_->fail_engine(error);
    }
    while (!state_->active.empty())
      state_->end_all(*state_->active.begin()->second, Finish::cancelled, nullptr);
    state_->delivery.send();
  }
  flush();
}

std::shared_ptr<const LoadedAdapter> Engine::State::find_adapter(std::string_view name) const {
  if (name.empty()) return nullptr;
  const auto at = adapters.find(name);
  if (at == adapters.end()) {
    throw core::Error(core::Code::not_found, fmt::format("no adapter '{}' is loaded", name))
        .in("adapter");
  }
  return at->second;
}

// Refuse what cannot be answered.
void Engine::State::refuse_unanswerable(const Request& request) const {
  using core::Code;
  const auto refuse = [](Code code, std::string message, const char* field) {
    throw core::Error(code, std::move(message)).in(field);
  };
  const RunnerLimits& most = runner->limits();
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (failed)
    refuse(Code::internal, "the device has failed; the engine must be restarted", "engine");
  if (request.prompt.empty())
    refuse(Code::invalid_argument, "there is nothing to continue", "prompt");
  if (length >= most.positions) {
    refuse(Code::out_of_range,
           fmt::format("{} tokens leave no room for an answer in a context of {}", length,
                       most.positions),
           "prompt");
  }
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || id >= most.vocab)
      refuse(Code::out_of_range, fmt::format("token id {} is outside [0, {})", id, most.vocab),
             "prompt");
  }
  validate(request.sampling, most.vocab);
  if (request.sampling.n > limits.sequences || request.sampling.n > limits.rows)
    refuse(Code::out_of_range,
           fmt::format("{} answers at once, and at most {} can run", request.sampling.n,
                       limits.sequences),
           "n");
  if (request.sampling.prompt_logprobs >= 0 && request.sampling.n >= limits.rows)
    refuse(Code::out_of_range,
           fmt::format("no row of logits is left for the prompt beside {} answers",
                       request.sampling.n),
           "prompt_logprobs");
  if (request.sampling.max_tokens < 1)
    refuse(Code::invalid_argument, fmt::format("{} is not at least 1", request.sampling.max_tokens),
           "max_tokens");
  if (!scheduler.fits(length + (request.sampling.max_tokens > 1 ? 1 : 0))) {
    refuse(Code::resource_exhausted,
           fmt::format("{} tokens need more keys and values than the {} pages hold", length,
                       pool.usable()),
           "prompt");
  }
}

// Accept, or refuse; cancel.
std::shared_ptr<Active> Engine::State::accept(Request request, std::uint64_t number,
                                              std::shared_ptr<const LoadedAdapter> adapter) {
  auto made = std::make_shared<Active>();
  made->handle = number;
  made->request = std::move(request);
  made->adapter = std::move(adapter);
  Sampling& s = made->request.sampling;
  if (!s.seed) s.seed = options.seed + number;
  made->sampling = std::make_shared<const Sampling>(s);
  const std::vector<std::int32_t>& prompt = made->request.prompt;
  const auto length = static_cast<std::int64_t>(prompt.size());
  const std::int64_t limit = std::min(length + s.max_tokens, runner->limits().positions);
  for (int i = 0; i < s.n; ++i) {
    auto choice = std::make_unique<Choice>(
        *made, i, RequestSampler(made->sampling, i, prompt, runner->limits().vocab, eos));
    choice->priority = made->request.priority;
    choice->prompt = length;
    choice->limit = limit;
    choice->tokens.reserve(
        static_cast<std::size_t>(limit + std::max(options.drafts, options.forced_drafts) + 1));
    choice->pages.reserve(static_cast<std::size_t>(limit / limits.page_size + 2));
    choice->prompt_logits = s.prompt_logprobs >= 0 && i == 0;
    const auto& pooling = made->request.pooling;
    choice->cacheable = options.prefix_caching && s.prompt_logprobs < 0 &&
                        !(pooling && pooling->kind == Pooling::Kind::mean);
    made->choices.push_back(std::move(choice));
  }
  Choice& first = *made->choices.front();
  first.tokens.assign(prompt.begin(), prompt.end());
  first.seats = s.n;
  made->open = made->choices.size();
  made->listener.prepare(made->handle, made->request, made->sampling, tokenizer, eos);
  return made;
}

Engine::Handle Engine::submit(Request request) {
  State& s = *state_;
  if (request.pooling) request.sampling = {.temperature = 0.0f, .max_tokens = 1};
  s.refuse_unanswerable(request);
  std::uint64_t number = 0;
  std::shared_ptr<const LoadedAdapter> adapter;
  {
    const std::scoped_lock lock(s.inbox_mutex);
    adapter = s.find_adapter(request.adapter);
    if (s.draining)
      throw core::Error(core::Code::resource_exhausted, "the engine is being drained").in("engine");
    if (s.in_queue >= s.options.max_waiting)
      throw core::Error(core::Code::resource_exhausted,
                        fmt::format("{} requests are waiting already", s.in_queue))
          .in("engine");
    number = ++s.submitted;
    ++s.in_queue;
  }
  if (request.prepare) {
    auto job =
        std::make_shared<Preparing>(Preparing{number, std::move(request), std::move(adapter)});
    const std::scoped_lock lock(s.inbox_mutex);
    s.preparing.emplace(number, job);
    s.to_prepare.push_back(std::move(job));
    if (!s.preparer.joinable()) s.preparer = std::thread([&s] { s.prepare_all(); });
    s.prepare_filled.notify_one();
    return number;
  }
  auto made = s.accept(std::move(request), number, std::move(adapter));
  const std::scoped_lock lock(s.inbox_mutex);
  s.inbox.push_back({std::move(made), number, -1, Finish::cancelled});
  s.inbox_filled.notify_one();
  return number;
}

void Engine::cancel(Handle handle) {
  const std::scoped_lock lock(state_->inbox_mutex);
  const auto job = state_->preparing.find(handle);
  if (job != state_->preparing.end()) {
    job->second->cancelled = true;
    return;
  }
  state_->inbox.push_back({nullptr, handle, -1, Finish::cancelled});
  state_->inbox_filled.notify_one();
}

// Take steps, here or on a thread.
bool Engine::step() {
  while (state_->controls > 0) std::this_thread::yield();
  const std::scoped_lock lock(state_->step_mutex);
  return state_->step();
}

void Engine::run() {
  do {
    while (step()) {
    }
    flush();  // a stop string that was found there ends a sequence here
    std::unique_lock lock(state_->inbox_mutex);
    state_->inbox_filled.wait(lock,
                              [&] { return state_->preparing.empty() || !state_->inbox.empty(); });
  } while (!state_->idle());
}

void Engine::start() {
  if (state_->loop.joinable()) return;
  state_->stopping = false;
  state_->loop = std::thread([this] {
    State& s = *state_;
    while (true) {
      const bool worked = step();
      std::unique_lock lock(s.inbox_mutex);
      if (!worked) s.inbox_filled.wait(lock, [&] { return s.stopping || !s.inbox.empty(); });
      if (s.stopping) return;
    }
  });
}

void Engine::stop() {
  if (!state_->loop.joinable()) return;
  {
    const std::scoped_lock lock(state_->inbox_mutex);
    state_->stopping = true;
    state_->inbox_filled.notify_one();
  }
  state_->loop.join();
}

void Engine::flush() {
  state_->delivery.flush();
}

Control Engine::control() {
  return Control(*this);
}

}  // namespace rose::infer
