// What the engine keeps.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "rose/core/error.h"
#include "rose/infer/delivery.h"
#include "rose/infer/engine.h"
#include "rose/infer/profile.h"
#include "rose/infer/scheduler.h"

namespace rose::infer {

// One of the answers to a request.
struct Active;

struct Choice : Sequence {
  Choice(Active& r, int i, RequestSampler s) : request(&r), index(i), sampler(std::move(s)) {}
  Active* request;
  int index;
  RequestSampler sampler;
  std::vector<double> pooled{};  ///< sums over hidden states,
  std::int64_t pooled_to = 0;    ///< of the tokens before this one
  bool done = false;
  std::int64_t told = 0;          ///< the last position of the prompt that was reported
  std::uint64_t last_launch = 0;  ///< the launch that chose its newest token,
  std::int32_t last_row = 0;      ///< and the row of logits there
};

/// An adapter in a slot of the runner. A request holds it while it runs.
struct LoadedAdapter {
  std::int32_t slot = 0;
  std::string key;  ///< of prefixes that were computed with it
};

/// A request whose grammar is being made.
struct Preparing {
  Engine::Handle handle = 0;
  Request request;
  std::shared_ptr<const LoadedAdapter> adapter;
  bool cancelled = false;
};

/// A request that has been accepted.
struct Active {
  Engine::Handle handle = 0;
  Request request;
  std::shared_ptr<const LoadedAdapter> adapter;  ///< null: the model as it is
  std::shared_ptr<const Sampling> sampling;
  std::vector<std::unique_ptr<Choice>> choices;
  std::size_t open = 0;  ///< choices that are not done
  Listener listener;     ///< the delivery's half
  std::chrono::steady_clock::time_point accepted = std::chrono::steady_clock::now();
  bool begun = false;  ///< a step has taken it up
};

// A step on its way.
struct Launch {
  std::vector<PlannedRow> rows;
  std::vector<std::int32_t> first_logit, first_hidden;  ///< of each row
  std::uint64_t weights_version = 0;
};

/// A row whose adjustments depend on a token that the launch before is choosing.
struct LateRow {
  Choice* choice;
  std::size_t row;  ///< of the logits
  std::int64_t position;
};

/// Is told of steps on the thread that takes them.
class StepWatcher {
 public:
  virtual ~StepWatcher() = default;
  virtual void launching(std::span<const PlannedRow> rows) = 0;
  virtual void completed() = 0;  ///< the oldest that was launched; its tokens are not taken in yet
};

struct Engine::State {
  State(std::unique_ptr<Runner> r, const EngineOptions& o, std::optional<text::Tokenizer> t);
  // What a step consists of.
  std::shared_ptr<Active> accept(Request request, std::uint64_t number,
                                 std::shared_ptr<const LoadedAdapter> adapter);
  void refuse_unanswerable(const Request& request) const;
  std::shared_ptr<const LoadedAdapter> find_adapter(std::string_view name) const;  ///< inbox locked
  PrefixLink root_of(const Active& request);
  bool step();
  void take_mail();
  void guess();
  bool most_wait_for_names() const;
  bool launch();  ///< false when the plan had nothing to run
  void build(Launch& launch);
  void add_row(const PlannedRow& row, Launch& launch);
  void add_logits(const PlannedRow& row, std::int32_t begin, bool promised);
  void choose_late();
  void add_hidden(const PlannedRow& row, std::int32_t begin);
  void complete();
  void take_row(const PlannedRow& row, std::int32_t logit, std::int32_t hidden,
                const StepOutput& out, std::uint64_t version);
  void take_hidden(Choice& choice, const PlannedRow& row, std::int32_t hidden,
                   const StepOutput& out);
  void take_prompt(Choice& choice, const PlannedRow& row, std::int32_t logit, const StepOutput& out,
                   std::uint64_t version);
  void take_tokens(Choice& choice, std::span<const std::int32_t> chosen, std::int32_t logit,
                   const StepOutput& out, std::uint64_t version);
  std::optional<Finish> reason(const Choice& choice, std::int32_t token, std::int64_t length) const;
  void end(Choice& choice, Finish finish, std::shared_ptr<const core::Error> error = nullptr,
           std::shared_ptr<const std::vector<float>> embedding = nullptr);
  void end_all(Active& request, Finish finish, const std::shared_ptr<const core::Error>& error);
  void fail_engine(const std::exception& error);
  void settle();  ///< completes every step in flight
  bool idle();
  bool prepares();     ///< whether a grammar is being made
  void prepare_all();  ///< the preparing thread
  void watch();        ///< the watchman's
  template <class Call>
  auto in_runner(const Call& call);  ///< calls it, watched
  // What belongs to which thread.
  EngineOptions options;
  std::unique_ptr<Runner> runner;
  std::optional<text::Tokenizer> tokenizer;
  std::vector<std::int32_t> eos;
  KvPool pool;
  PrefixCache cache;
  SchedulerLimits limits;
  Scheduler scheduler;
  bool overlap = false;

  struct Message {
    std::shared_ptr<Active> submit;  ///< or, without one,
    Engine::Handle handle = 0;       ///< end
    int choice = -1;                 ///< this choice, or all: -1
    Finish finish = Finish::cancelled;
    std::shared_ptr<const core::Error> error{};  ///< the request could not be prepared
  };
  std::mutex inbox_mutex;
  std::vector<Message> inbox;
  std::condition_variable inbox_filled;
  std::map<Engine::Handle, std::shared_ptr<Preparing>> preparing;
  std::deque<std::shared_ptr<Preparing>> to_prepare;
  std::condition_variable prepare_filled;
  bool nothing_to_prepare = false;  ///< from now on
  std::uint64_t submitted = 0;
  std::size_t in_queue = 0;  ///< submitted and not yet running, as far as the inbox knows
  bool draining = false, stopping = false;
  std::map<std::string, std::shared_ptr<const LoadedAdapter>, std::less<>> adapters;
  std::atomic<bool> failed{false};

  std::mutex step_mutex;         ///< held by a step, and by control between steps
  std::atomic<int> controls{0};  ///< that want it
  std::vector<Message> mail;     ///< the inbox, taken out
  std::unordered_map<Engine::Handle, std::shared_ptr<Active>> active;
  std::vector<std::shared_ptr<Active>> leaving;  ///< finished, perhaps still in flight
  std::uint64_t numbers = 0, launches = 0;
  StepPlan plan;
  std::vector<Launch>
      in_flight;  ///< the oldest first; two at most, so a deque's blocks would only cost
  std::vector<Launch> spare;
  StepWatcher* watcher = nullptr;
  std::vector<kernels::KvPageCopy> copies;
  std::vector<std::shared_ptr<const LoadedAdapter>> slots;  ///< of the runner; null: empty
  std::vector<std::int32_t> ids, positions, offsets, table, logit_tokens, row_adapters,
      hidden_tokens;
  std::vector<RowSampling> sampling;
  std::vector<LateRow> late;  ///< rows of `sampling` that are not final yet
  std::vector<DraftTask> draft_tasks;
  Statistics statistics;
  std::optional<std::vector<ProfileSpan>> profile;  ///< while somebody records
  Delivery delivery;
  std::thread loop, preparer, watchman;

  std::mutex
      watch_mutex;  ///< held by whoever may touch the step's data while the runner has the step
  std::condition_variable watch_ends;
  std::chrono::steady_clock::time_point entered;
  bool inside = false, given_up = false, nothing_to_watch = false;
};

// Hand a step to the runner, watched.
template <class Call>
auto Engine::State::in_runner(const Call& call) {
  struct Inside {
    explicit Inside(State& s) : state(&s) { say(true); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { say(false); }
    void say(bool is_inside) const {
      const std::scoped_lock lock(state->watch_mutex);  // waits for a watchman who is giving up
      state->inside = is_inside;
      if (is_inside) state->entered = std::chrono::steady_clock::now();
    }
    State* state;
  };
  const auto watched = [&] {
    const Inside inside_now(*this);
    return call();
  };
  const auto check = [&] {
    if (given_up)
      throw core::Error(core::Code::internal, "the step was given up before it ended").in("runner");
  };
  if constexpr (std::is_void_v<decltype(call())>) {
    watched();
    check();
  } else {
    auto result = watched();
    check();
    return result;
  }
}

}  // namespace rose::infer
