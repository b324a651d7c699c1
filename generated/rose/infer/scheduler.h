// Plan steps, and keep the queues.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "rose/infer/admission.h"
#include "rose/infer/kv_pool.h"
#include "rose/infer/prefix_cache.h"

namespace rose::infer {

// One answer in the making.
struct Sequence {
  std::uint64_t number = 0;  ///< in order of arrival
  int priority = 0;
  std::vector<std::int32_t> tokens;    ///< prompt and answer, as far as known
  std::int64_t prompt = 0, limit = 0;  ///< tokens of the prompt; the most in all
  int seats = 1;                       ///< how many choices it becomes when its prompt is computed
  bool lockstep = false;               ///< not to be planned before its newest token is known
  bool prompt_logits = false;          ///< logits are wanted at every token of the prompt
  bool cacheable = true;               ///< may begin with pages from the prefix cache
  std::vector<std::int32_t> drafts;    ///< guessed tokens to come; only with lockstep
  PrefixLink root;

  // The scheduler's.
  enum class State : std::uint8_t { idle, waiting, running };
  State state = State::idle;
  std::int64_t computed = 0;  ///< keys written, or about to be by a launched step
  int awaited = 0;            ///< launched steps that choose a token of it
  int in_flight = 0;          ///< launched steps that it is part of
  std::int64_t found = 0;     ///< prompt tokens that the cache had, at first admission
  std::int64_t passed = 0, preemptions = 0;
  std::vector<std::int32_t> pages;
  std::int64_t room = 0;       ///< positions below this one can be written without asking the pool
  std::int64_t published = 0;  ///< pages, from the first
  PrefixLink link;             ///< where the text stands after them

  std::int64_t known() const { return static_cast<std::int64_t>(tokens.size()) + awaited; }
  std::int64_t pending() const { return known() - computed; }
};

// What one step is going to do.
struct PlannedRow {
  Sequence* sequence = nullptr;
  std::int64_t first = 0;    ///< position of its first token
  std::int32_t count = 0;    ///< tokens, drafts included
  std::int32_t drafts = 0;   ///< how many of them are guesses
  std::int32_t logits = 0;   ///< rows of logits: 0 when prompt remains
  std::int32_t choices = 0;  ///< the last of the logits rows, which choose: seats, or 1 + drafts
  std::int64_t fresh = 0;    ///< pages to take
};
struct PlannedAdmission {
  Sequence* sequence = nullptr;
  std::size_t hits_begin = 0, hits_end = 0;  ///< of StepPlan::hits
  std::int64_t computed = 0;
  PrefixLink link;
};
struct StepPlan {
  std::vector<PlannedRow> rows;
  std::vector<PlannedAdmission> admitted;
  std::vector<std::int32_t> hits;    ///< pages found for the admitted
  std::vector<Sequence*> preempted;  ///< lose their pages and wait again
  Sequence* impossible = nullptr;    ///< cannot run even alone: to be failed
  bool short_of_pages = false;  ///< pages are in flight that would have helped: plan again later
  std::int64_t tokens = 0, logits = 0, pages = 0;
  std::size_t next_turn = 0;  ///< which decoding sequence is first in the next step
};

struct SchedulerLimits {
  std::int64_t tokens = 2048;    ///< of one step
  std::int64_t sequences = 256;  ///< running
  std::int64_t rows = 256;       ///< of logits
  std::int64_t chunk = 0;        ///< the most prompt tokens of one sequence in a step; 0: no limit
  int page_size = 16;
  AdmissionPolicy policy = AdmissionPolicy::fifo;
  std::size_t look_ahead = 64;  ///< waiting requests that pack and shortest consider
  std::int64_t patience = 100;
};

/// Sequences belong to the caller, and stay where they are until removed and out of flight. One thread.
class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, KvPool& pool, PrefixCache& cache);

  void add(Sequence& sequence);     ///< to the waiting
  void remove(Sequence& sequence);  ///< finished or cancelled: its pages go back
  void restart(
      Sequence& sequence);  ///< of a running one: its pages go back, and it waits with its tokens
  void restart_all();       ///< when the weights have changed; nothing may be in flight

  void plan(StepPlan& plan) const;
  /// Does what the plan says, and counts a step as launched if it has rows. Page copies are appended.
  void apply(const StepPlan& plan, std::vector<kernels::KvPageCopy>& copies);
  /// A launched step is over: its pages are written. Call for the oldest one, then extend its sequences.
  void complete(std::span<const PlannedRow> rows);
  /// The tokens that the row's choices were; appends those that stand (the first, and one more for each
  /// draft that was right), publishes pages, and returns how many stand.
  std::int64_t extend(const PlannedRow& row, std::span<const std::int32_t> chosen);
  /// A second sequence over the same prompt, which takes its own first token. The seats move to it.
  void fork(Sequence& from, Sequence& to, std::int32_t token);

  std::span<Sequence* const> running() const { return running_; }
  const std::deque<Sequence*>& waiting() const { return waiting_; }
  int steps_in_flight() const { return steps_; }
  std::int64_t seats() const { return seats_; }
  /// Could a sequence of so many tokens ever run?
  bool fits(std::int64_t tokens) const;
  const SchedulerLimits& limits() const { return limits_; }

 private:
  struct Left {
    std::int64_t tokens, rows, pages, seats;
  };
  // The parts of planning, and the queues.
  bool ready(const Sequence& sequence) const;
  static bool lost(const StepPlan& plan, const Sequence& sequence);
  void plan_row(StepPlan& plan, Left& left, Sequence& sequence, std::int64_t want) const;
  bool make_room(StepPlan& plan, Left& left, Sequence& sequence, std::int64_t fresh) const;
  void plan_answers(StepPlan& plan, Left& left) const;
  void plan_prompts(StepPlan& plan, Left& left) const;
  void plan_admissions(StepPlan& plan, Left& left) const;
  Admission try_admit(StepPlan& plan, Left& left, Sequence& sequence) const;
  bool before(const Sequence& a, const Sequence& b) const;  ///< the order of the waiting
  void enqueue(Sequence& sequence);
  void publish(Sequence& sequence, std::int64_t written);

  SchedulerLimits limits_;
  KvPool* pool_;
  PrefixCache* cache_;
  std::vector<Sequence*> running_;  ///< in order of admission
  std::deque<Sequence*>
      waiting_;             ///< overdue first, then by priority where that counts, then by number
  std::int64_t seats_ = 0;  ///< taken by the running
  std::size_t turn_ = 0;
  int steps_ = 0;
  mutable std::vector<Applicant> window_;  // scratch of plan()
  mutable std::vector<std::int32_t> order_;
};

}  // namespace rose::infer
