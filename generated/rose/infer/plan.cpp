// Divide one step among those who want it.

#include <algorithm>

#include "rose/infer/scheduler.h"

namespace rose::infer {

// Answers, then prompts that have begun, then newcomers.
void Scheduler::plan(StepPlan& plan) const {
  plan.rows.clear(), plan.admitted.clear(), plan.hits.clear(), plan.preempted.clear();
  plan.impossible = nullptr;
  plan.short_of_pages = false;
  plan.tokens = plan.logits = plan.pages = 0;
  plan.next_turn = 0;
  Left left{limits_.tokens, limits_.rows, pool_->available(), limits_.sequences - seats_};
  plan_answers(plan, left);
  plan_prompts(plan, left);
  if (!plan.short_of_pages && plan.preempted.empty() && plan.impossible == nullptr)
    plan_admissions(plan, left);
}

bool Scheduler::ready(const Sequence& s) const {
  if (s.awaited > 0 && (s.lockstep || s.seats > 1)) return false;
  return s.known() < s.limit;  // what is awaited may be its last token
}

bool Scheduler::lost(const StepPlan& plan, const Sequence& s) {  // its pages, in this very plan
  return std::ranges::find(plan.preempted, &s) != plan.preempted.end();
}

// One token for every answer, in turns where there are too many.
void Scheduler::plan_answers(StepPlan& plan, Left& left) const {
  const std::size_t n = running_.size();
  std::size_t at = turn_ < n ? turn_ : 0;
  plan.next_turn = at;
  for (std::size_t i = 0; i < n; ++i, at = at + 1 == n ? 0 : at + 1) {
    Sequence& s = *running_[at];
    if (s.pending() != 1 || !ready(s) || lost(plan, s)) continue;
    if (left.tokens == 0 || left.rows == 0) {
      plan.next_turn = at;
      return;
    }
    plan_row(plan, left, s, 1 + static_cast<std::int64_t>(s.drafts.size()));
    if (plan.short_of_pages || plan.impossible != nullptr) return;
  }
}

void Scheduler::plan_prompts(StepPlan& plan, Left& left) const {
  for (Sequence* s : running_) {
    if (plan.short_of_pages || plan.impossible != nullptr || left.tokens == 0) return;
    if (s->pending() > 1 && ready(*s) && !lost(plan, *s)) plan_row(plan, left, *s, s->pending());
  }
}

// Give a sequence its part of the step.
void Scheduler::plan_row(StepPlan& plan, Left& left, Sequence& s, std::int64_t want) const {
  const std::int64_t pending = s.pending();
  std::int64_t count = std::min(want, left.tokens);
  if (limits_.chunk > 0) count = std::min(count, std::max(limits_.chunk, std::int64_t{1}));
  const bool every = s.prompt_logits && s.computed < s.prompt;
  if (every) count = std::min(count, left.rows - s.seats);
  if (count <= 0) return;
  std::int64_t choices = count < pending ? 0 : std::max<std::int64_t>(s.seats, count - pending + 1);
  if (choices > left.rows) {  // fewer guesses, or one token less of the prompt
    if (s.seats > 1 || pending > 1)
      count = pending - 1, choices = 0;
    else
      count = left.rows, choices = left.rows;
    if (count == 0) return;
  }
  PlannedRow row{.sequence = &s, .first = s.computed, .count = static_cast<std::int32_t>(count)};
  row.drafts = static_cast<std::int32_t>(std::max<std::int64_t>(count - pending, 0));
  row.choices = static_cast<std::int32_t>(choices);
  row.logits = row.choices;
  if (every) row.logits += static_cast<std::int32_t>(std::min(count, s.prompt - 1 - s.computed));
  if (row.first + count > s.room)
    row.fresh = page_need(*pool_, s.pages, row.first, count, limits_.page_size).fresh;
  if (row.fresh > left.pages && !make_room(plan, left, s, row.fresh)) return;
  left.tokens -= count, left.rows -= row.logits, left.pages -= row.fresh;
  plan.tokens += count, plan.logits += row.logits, plan.pages += row.fresh;
  plan.rows.push_back(row);
}

// Take pages from whoever came last.
bool Scheduler::make_room(StepPlan& plan, Left& left, Sequence& s, std::int64_t fresh) const {
  if (steps_ > 0) {
    plan.short_of_pages = true;
    return false;
  }
  while (fresh > left.pages) {
    // Find who came last, or who cannot be helped.
    Sequence* victim = nullptr;
    for (Sequence* other : running_) {
      if (std::ranges::find(plan.preempted, other) != plan.preempted.end()) continue;
      const bool later = victim == nullptr || other->priority < victim->priority ||
                         (other->priority == victim->priority && other->number > victim->number);
      if (later) victim = other;
    }
    if (victim == &s && plan.preempted.empty() && running_.size() == 1) {
      plan.impossible = &s;
      victim = nullptr;
    }
    if (victim == nullptr) return false;
    for (const std::int32_t page : victim->pages) left.pages += pool_->owners(page) == 1 ? 1 : 0;
    const auto planned = std::ranges::find(plan.rows, victim, &PlannedRow::sequence);
    if (planned != plan.rows.end()) {  // it had a place in this step
      left.tokens += planned->count, left.rows += planned->logits, left.pages += planned->fresh;
      plan.tokens -= planned->count, plan.logits -= planned->logits, plan.pages -= planned->fresh;
      plan.rows.erase(planned);
    }
    plan.preempted.push_back(victim);
    if (victim == &s) return false;
  }
  return true;
}

// Let newcomers in.
void Scheduler::plan_admissions(StepPlan& plan, Left& left) const {
  if (waiting_.empty() || left.tokens == 0 || left.seats == 0) return;
  const bool ahead =
      limits_.policy == AdmissionPolicy::pack || limits_.policy == AdmissionPolicy::shortest;
  // Under fifo and priority the queue is in the order of trying, and nobody beyond the free seats can matter.
  const auto most = ahead ? limits_.look_ahead : static_cast<std::size_t>(left.seats);
  window_.clear();
  for (std::size_t i = 0; i < std::min(most, waiting_.size()); ++i)
    window_.push_back({waiting_[i]->pending(), waiting_[i]->priority, waiting_[i]->passed});
  admit(limits_.policy, window_, limits_.patience, order_, [&](std::int32_t i) {
    return try_admit(plan, left, *waiting_[static_cast<std::size_t>(i)]);
  });
}

Admission Scheduler::try_admit(StepPlan& plan, Left& left, Sequence& s) const {
  if (left.tokens == 0 || left.rows < s.seats || left.seats < s.seats) return Admission::full;
  if (!fits(s.known())) {
    plan.impossible = &s;
    return Admission::full;
  }
  // Look for the beginning, and see whether the rest fits.
  const std::size_t begin = plan.hits.size();
  PrefixLink link = s.root;
  if (s.cacheable) link = cache_->find(s.root, s.tokens, plan.hits);
  const std::int64_t size = limits_.page_size, known = s.known();
  const auto reserve = static_cast<std::int64_t>(running_.size() + plan.admitted.size());
  std::int64_t computed = 0, needed = 0;
  const auto measure = [&] {
    const auto hits = static_cast<std::int64_t>(plan.hits.size() - begin);
    computed = std::min(hits * size, known - 1);
    const bool copy = computed < hits * size;
    needed = std::min((known + size) / size, pool_->usable()) - hits + (copy ? 1 : 0);
    for (std::size_t i = begin; i < plan.hits.size(); ++i)
      needed += pool_->state(plan.hits[i]) == PageState::cached ? 1 : 0;
  };
  measure();
  if (needed + reserve > left.pages && computed % size != 0 && plan.hits.size() > begin) {
    plan.hits.resize(begin);
    link = cache_->find(s.root, std::span(s.tokens).first(static_cast<std::size_t>(known - 1)),
                        plan.hits);
    measure();
  }
  if (needed + reserve > left.pages) {
    plan.hits.resize(begin);
    return Admission::no_room;
  }
  // Plan its first row.
  std::int64_t count = std::min(known - computed, left.tokens);
  if (limits_.chunk > 0) count = std::min(count, limits_.chunk);
  if (s.prompt_logits) count = std::min(count, left.rows - s.seats);
  if (count <= 0) {
    plan.hits.resize(begin);
    return Admission::full;
  }
  const std::span<const std::int32_t> hits = std::span(plan.hits).subspan(begin);
  PlannedRow row{.sequence = &s, .first = computed, .count = static_cast<std::int32_t>(count)};
  row.choices = count == known - computed ? s.seats : 0;
  row.logits = row.choices;
  if (s.prompt_logits && computed < s.prompt)
    row.logits += static_cast<std::int32_t>(std::min(count, s.prompt - 1 - computed));
  row.fresh = page_need(*pool_, hits, computed, count, limits_.page_size).fresh;
  const auto revived = std::ranges::count_if(
      hits, [&](std::int32_t page) { return pool_->state(page) == PageState::cached; });
  left.tokens -= count, left.rows -= row.logits, left.seats -= s.seats;
  left.pages -= row.fresh + revived;
  plan.tokens += count, plan.logits += row.logits, plan.pages += row.fresh;
  plan.rows.push_back(row);
  plan.admitted.push_back({&s, begin, plan.hits.size(), computed, link});
  return Admission::admitted;
}

}  // namespace rose::infer
