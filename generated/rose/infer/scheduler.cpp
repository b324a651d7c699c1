// Plan steps, and keep the queues.

#include "rose/infer/scheduler.h"

#include <algorithm>

namespace rose::infer {

Scheduler::Scheduler(const SchedulerLimits& limits, KvPool& pool, PrefixCache& cache)
    : limits_(limits), pool_(&pool), cache_(&cache) {
  running_.reserve(static_cast<std::size_t>(limits.sequences));
}

bool Scheduler::fits(std::int64_t tokens) const {
  return (tokens + limits_.page_size - 1) / limits_.page_size <= pool_->usable();
}

// Wait, leave.
bool Scheduler::before(const Sequence& a, const Sequence& b) const {
  const bool a_late = a.passed >= limits_.patience, b_late = b.passed >= limits_.patience;
  if (a_late != b_late) return a_late;
  if (!a_late && limits_.policy == AdmissionPolicy::priority && a.priority != b.priority)
    return a.priority > b.priority;
  return a.number < b.number;
}

void Scheduler::enqueue(Sequence& s) {
  s.state = Sequence::State::waiting;
  const auto at =
      std::upper_bound(waiting_.begin(), waiting_.end(), &s,
                       [&](const Sequence* a, const Sequence* b) { return before(*a, *b); });
  waiting_.insert(at, &s);
}

void Scheduler::add(Sequence& s) {
  enqueue(s);
}

void Scheduler::remove(Sequence& s) {
  if (s.state == Sequence::State::running) {
    std::erase(running_, &s);
    seats_ -= s.seats;
  } else if (s.state == Sequence::State::waiting) {
    waiting_.erase(std::ranges::find(waiting_, &s));
  }
  s.state = Sequence::State::idle;
  s.room = 0;
  release_pages(*pool_, s.pages);
}

void Scheduler::restart(Sequence& s) {
  remove(s);
  s.computed = s.published = 0;
  s.drafts.clear();
  ++s.preemptions;
  enqueue(s);
}

void Scheduler::restart_all() {
  while (!running_.empty()) restart(*running_.back());
}

// Do what the plan says.
void Scheduler::apply(const StepPlan& plan, std::vector<kernels::KvPageCopy>& copies) {
  for (Sequence* s : plan.preempted) restart(*s);
  for (const PlannedAdmission& in : plan.admitted) {
    Sequence& s = *in.sequence;
    for (std::size_t i = in.hits_begin; i < in.hits_end; ++i) pool_->share(plan.hits[i]);
    s.pages.assign(plan.hits.begin() + static_cast<std::ptrdiff_t>(in.hits_begin),
                   plan.hits.begin() + static_cast<std::ptrdiff_t>(in.hits_end));
    s.computed = in.computed;
    s.published = static_cast<std::int64_t>(s.pages.size());
    s.link = in.link;
    if (s.cacheable) cache_->count_hit(s.known(), s.computed);
    if (s.preemptions == 0) s.found = s.computed;
    const auto at = std::ranges::find(waiting_, &s);
    // Count who was passed.
    const bool none_passed = at == waiting_.begin() && limits_.policy != AdmissionPolicy::priority;
    waiting_.erase(at);
    for (std::size_t i = 0; i < waiting_.size() && !none_passed; ++i) {
      Sequence& other = *waiting_[i];
      if (other.number > s.number) {
        if (limits_.policy != AdmissionPolicy::priority) break;
        continue;
      }
      if (++other.passed == limits_.patience) {  // overdue: it moves to the front
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
        enqueue(other);
      }
    }
    s.state = Sequence::State::running;
    running_.push_back(&s);
    seats_ += s.seats;
  }
  turn_ = plan.next_turn;
  if (plan.rows.empty()) return;
  ++steps_;
  pool_->launch();
  for (const PlannedRow& row : plan.rows) {
    Sequence& s = *row.sequence;
    if (row.first + row.count > s.room) {
      reserve_pages(*pool_, s.pages, row.first, row.count, limits_.page_size, copies);
      s.room = static_cast<std::int64_t>(s.pages.size()) * limits_.page_size;
    }
    s.computed = row.first + row.count;
    ++s.in_flight;
    if (row.choices > 0) ++s.awaited;
  }
}

// Take in what a step has done.
void Scheduler::complete(std::span<const PlannedRow> rows) {
  --steps_;
  pool_->complete();
  for (const PlannedRow& row : rows) {
    Sequence& s = *row.sequence;
    --s.in_flight;
    if (row.choices > 0) --s.awaited;
    if (s.state == Sequence::State::running) publish(s, row.first + row.count - row.drafts);
  }
}

void Scheduler::publish(Sequence& s, std::int64_t written) {
  const std::int64_t size = limits_.page_size;
  written = std::min(written, static_cast<std::int64_t>(s.tokens.size()));
  for (; (s.published + 1) * size <= written; ++s.published) {
    const auto page = static_cast<std::size_t>(s.published);
    s.link = cache_->publish(s.link,
                             std::span(s.tokens).subspan(page * static_cast<std::size_t>(size),
                                                         static_cast<std::size_t>(size)),
                             s.pages[page]);
  }
}

std::int64_t Scheduler::extend(const PlannedRow& row, std::span<const std::int32_t> chosen) {
  Sequence& s = *row.sequence;
  std::size_t stand = 1;
  while (stand <= static_cast<std::size_t>(row.drafts) && s.drafts[stand - 1] == chosen[stand - 1])
    ++stand;
  s.tokens.insert(s.tokens.end(), chosen.begin(),
                  chosen.begin() + static_cast<std::ptrdiff_t>(stand));
  if (row.drafts > 0) s.computed = static_cast<std::int64_t>(s.tokens.size()) - 1;
  s.drafts.clear();
  return static_cast<std::int64_t>(stand);
}

// Become several.
void Scheduler::fork(Sequence& from, Sequence& to, std::int32_t token) {
  to.tokens.assign(from.tokens.begin(),
                   from.tokens.begin() + static_cast<std::ptrdiff_t>(from.prompt));
  to.tokens.push_back(token);
  to.prompt = from.prompt;
  to.computed = from.prompt;
  to.found = from.found;
  to.root = from.root;
  to.link = from.link;
  to.published = from.published;
  to.pages = from.pages;
  from.room = 0;  // its last page has several owners now
  for (const std::int32_t page : to.pages) pool_->share(page);
  to.state = Sequence::State::running;
  running_.push_back(&to);
  --from.seats;  // which `to` sits on now
}

}  // namespace rose::infer
