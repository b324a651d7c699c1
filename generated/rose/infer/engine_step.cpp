// Take one step.

#include <algorithm>

#include <fmt/format.h>

#include "rose/core/error.h"
#include "rose/infer/engine_state.h"
#include "rose/model/weights.h"

namespace rose::infer {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

// Plan, launch, take in.
bool Engine::State::step() {
  const auto start = Clock::now();
  const Stretch whole(profile, "step");
  take_mail();
  if (failed) {
    fail_engine(
        core::Error(core::Code::internal, "the device has failed; the engine must be restarted")
            .in("engine"));
    delivery.send();
    return false;
  }
  try {
    const bool launched = launch();
    const std::size_t depth = overlap ? 1 : 0;
    if (launched || !in_flight.empty()) {
      while (in_flight.size() > (launched ? depth : 0)) complete();
    }
    if (launched) choose_late();
    std::erase_if(leaving, [](const auto& request) {
      return std::ranges::all_of(request->choices, [](const auto& c) { return c->in_flight == 0; });
    });
    statistics.step_seconds += since(start);
    delivery.send();
    return launched || !idle();
  } catch (const std::exception& error) {
    fail_engine(error);
    delivery.send();
    return false;
  }
}

bool Engine::State::idle() {
  const std::scoped_lock lock(inbox_mutex);
  return active.empty() && inbox.empty();
}

// Empty the inbox.
void Engine::State::take_mail() {
  {
    const std::scoped_lock lock(inbox_mutex);
    mail.swap(inbox);
    in_queue = scheduler.waiting().size() + preparing.size();
    for (const Message& m : mail) in_queue += m.submit != nullptr ? 1 : 0;
  }
  for (Message& m : mail) {
    if (m.submit != nullptr) {
      Active& request = *m.submit;
      for (const auto& choice : request.choices) choice->number = numbers++;
      Choice& first = *request.choices.front();
      first.root = root_of(request);
      active.emplace(request.handle, std::move(m.submit));
      scheduler.add(first);
      if (m.error != nullptr) end_all(request, m.finish, m.error);
      continue;
    }
    const auto at = active.find(m.handle);
    if (at == active.end()) continue;
    Active& request = *at->second;
    if (m.choice < 0)
      end_all(request, m.finish, nullptr);
    else if (Choice& c = *request.choices[static_cast<std::size_t>(m.choice)]; !c.done)
      end(c, m.finish);
  }
  mail.clear();
}

// Make a plan that does something.
bool Engine::State::most_wait_for_names() const {
  const auto running = scheduler.running();
  const auto waiting = std::ranges::count_if(
      running, [](const Sequence* s) { return s->lockstep && s->awaited > 0; });
  return waiting > 0 && 2 * waiting >= std::ssize(running);
}

bool Engine::State::launch() {
  if (!in_flight.empty() && most_wait_for_names()) complete();
  {
    const Stretch planning(profile, "plan");
    guess();
    scheduler.plan(plan);
  }
  while (!in_flight.empty() &&
         (plan.short_of_pages || (plan.rows.empty() && plan.impossible == nullptr))) {
    complete();
    guess();
    scheduler.plan(plan);
  }
  if (plan.impossible != nullptr) {
    auto& choice = static_cast<Choice&>(*plan.impossible);
    const auto error = std::make_shared<const core::Error>(
        core::Error(core::Code::resource_exhausted,
                    fmt::format("{} tokens need more keys and values than the {} pages hold",
                                choice.tokens.size(), pool.usable()))
            .in("request"));
    if (choice.seats > 1)
      end_all(*choice.request, Finish::error, error);
    else
      end(choice, Finish::error, error);
    return false;
  }
  if (plan.rows.empty() && plan.preempted.empty()) {
    if (!scheduler.running().empty() || !scheduler.waiting().empty())
      throw core::Error(core::Code::internal, "a step did nothing although requests wait")
          .in("scheduler");
    return false;
  }
  copies.clear();
  scheduler.apply(plan, copies);
  statistics.preemptions += static_cast<std::int64_t>(plan.preempted.size());
  if (plan.rows.empty()) return true;
  if (spare.empty()) spare.emplace_back();
  Launch next = std::move(spare.back());
  spare.pop_back();
  {
    const Stretch building(profile, "build");
    build(next);
  }
  const Stretch launching(profile, "launch");
  const auto start = Clock::now();
  const auto rows = static_cast<std::int64_t>(plan.rows.size());
  const std::int64_t stride = rows > 0 ? static_cast<std::int64_t>(table.size()) / rows : 0;
  if (watcher != nullptr) watcher->launching(next.rows);
  in_runner([&] {
    runner->launch({ids, positions, offsets, table, stride, copies, logit_tokens, sampling,
                    row_adapters, hidden_tokens, !late.empty()});
  });
  statistics.runner_seconds += since(start);
  ++launches, ++statistics.steps;
  in_flight.push_back(std::move(next));
  return true;
}

// Guess what comes next.
void Engine::State::guess() {
  const bool few = tokenizer.has_value() && scheduler.running().size() <= options.forced_streams;
  for (Sequence* s : scheduler.running()) {
    const RequestSampler& sampler = static_cast<const Choice&>(*s).sampler;
    const bool guessed = options.drafter != nullptr || (few && sampler.grammar() != nullptr);
    s->lockstep = guessed || (sampler.needs_history() && !runner->limits().late_choices);
  }
  if (options.drafter == nullptr && !few) return;
  for (Sequence* s : scheduler.running()) {
    if (s->awaited > 0 || s->pending() != 1 || !s->drafts.empty()) continue;
    const std::int64_t room = s->limit - s->known() - 1;
    if (room <= 0) continue;
    const auto most = [&](int asked) {
      return static_cast<int>(std::min<std::int64_t>(asked, room));
    };
    const GrammarState* const grammar = static_cast<const Choice&>(*s).sampler.grammar();
    if (few && grammar != nullptr) {
      s->drafts = tokenizer->encode(static_cast<Choice&>(*s).sampler.forced(), false);
      const auto wanted = static_cast<std::size_t>(most(options.forced_drafts));
      if (s->drafts.size() > wanted) s->drafts.resize(wanted);
    }
    if (s->drafts.empty() && options.drafter != nullptr)
      draft_tasks.push_back({s->number, s->tokens, most(options.drafts),
                             &static_cast<Choice&>(*s).sampler, &s->drafts});
  }
  if (draft_tasks.empty()) return;
  const Stretch drafting(profile, "draft");
  options.drafter->draft_all(draft_tasks);
  for (const DraftTask& task : draft_tasks)
    if (std::ssize(*task.out) > task.most) task.out->resize(static_cast<std::size_t>(task.most));
  draft_tasks.clear();
}

// Say how to choose, now that the names are known.
void Engine::State::choose_late() {
  if (late.empty()) return;
  {
    const Stretch filling(profile, "masks");
    for (const LateRow& row : late)
      if (!row.choice->done) sampling[row.row] = row.choice->sampler.row(row.position);
  }
  const auto start = Clock::now();
  in_runner([&] { runner->choose(sampling); });
  statistics.runner_seconds += since(start);
  late.clear();
}

// Pack the rows.
namespace {

/// Rows with one adapter become neighbours, those without any the first. `slots` stays empty when no row has one.
void sort_by_adapter(std::vector<PlannedRow>& rows, std::vector<std::int32_t>& slots) {
  const auto slot = [](const PlannedRow& row) {
    const auto& adapter = static_cast<const Choice&>(*row.sequence).request->adapter;
    return adapter == nullptr ? -1 : adapter->slot;
  };
  if (std::ranges::all_of(rows, [&](const PlannedRow& row) { return slot(row) < 0; })) return;
  std::ranges::stable_sort(rows, {}, slot);
  for (const PlannedRow& row : rows) slots.push_back(slot(row));
}

}  // namespace

void Engine::State::build(Launch& next) {
  ids.clear(), positions.clear(), logit_tokens.clear(), sampling.clear(), next.first_logit.clear();
  hidden_tokens.clear(), next.first_hidden.clear(), row_adapters.clear(), late.clear();
  offsets.assign(1, 0);
  next.rows.assign(plan.rows.begin(), plan.rows.end());
  sort_by_adapter(next.rows, row_adapters);
  next.weights_version = runner->weights()->version();
  std::size_t stride = 1;
  for (const PlannedRow& row : plan.rows) stride = std::max(stride, row.sequence->pages.size());
  table.assign(stride * plan.rows.size(), 0);
  auto to = table.begin();
  for (const PlannedRow& row : next.rows) {
    std::ranges::copy(row.sequence->pages, to);
    to += static_cast<std::ptrdiff_t>(stride);
    add_row(row, next);
  }
}

PrefixLink Engine::State::root_of(const Active& request) {
  return cache.root(runner->weights()->version(),
                    request.adapter == nullptr ? std::string_view() : request.adapter->key,
                    request.request.salt);
}

void Engine::State::add_row(const PlannedRow& row, Launch& next) {
  auto& choice = static_cast<Choice&>(*row.sequence);
  if (Active& request = *choice.request; !std::exchange(request.begun, true))
    request.listener.begun(std::chrono::steady_clock::now() - request.accepted);
  const auto begin = static_cast<std::int32_t>(ids.size());
  const auto known = static_cast<std::int64_t>(choice.tokens.size());
  const bool promised = choice.awaited > (row.choices > 0 ? 1 : 0);
  for (std::int64_t p = row.first; p < row.first + row.count; ++p) {
    std::int32_t id = 0;
    if (p < known) {
      id = choice.tokens[static_cast<std::size_t>(p)];
    } else if (promised) {
      if (choice.last_launch != launches)
        throw core::Error(core::Code::internal, "a promised token is not from the launch before")
            .in("engine");
      id = -(choice.last_row + 1);
    } else {
      id = choice.drafts[static_cast<std::size_t>(p - known)];
    }
    ids.push_back(id);
    positions.push_back(static_cast<std::int32_t>(p));
  }
  offsets.push_back(static_cast<std::int32_t>(ids.size()));
  next.first_logit.push_back(static_cast<std::int32_t>(logit_tokens.size()));
  next.first_hidden.push_back(static_cast<std::int32_t>(hidden_tokens.size()));
  add_logits(row, begin, promised);
  if (choice.request->request.pooling) add_hidden(row, begin);
  statistics.drafted += row.drafts;
  if (row.first < choice.prompt || row.count > 1 + row.drafts)
    statistics.prompt_tokens += row.count;
}

// Say which logits are wanted, and how they are read.
void Engine::State::add_logits(const PlannedRow& row, std::int32_t begin, bool promised) {
  auto& choice = static_cast<Choice&>(*row.sequence);
  for (std::int32_t i = 0; i < row.logits - row.choices; ++i) {
    logit_tokens.push_back(begin + i);
    RowSampling given;
    given.given = choice.tokens[static_cast<std::size_t>(row.first + i + 1)];
    given.logprobs = choice.request->sampling->prompt_logprobs;
    sampling.push_back(given);
  }
  if (row.choices == 0) return;
  choice.last_launch = launches + 1;
  choice.last_row = static_cast<std::int32_t>(logit_tokens.size());
  const std::int64_t position = row.first + row.count - row.drafts;
  const std::span<const std::int32_t> drafts(choice.drafts);
  for (std::int32_t i = 0; i < row.choices; ++i) {
    if (choice.seats > 1) {
      logit_tokens.push_back(begin + row.count - 1);
      sampling.push_back(
          choice.request->choices[static_cast<std::size_t>(i)]->sampler.row(position));
    } else {
      logit_tokens.push_back(begin + row.count - 1 - row.drafts + i);
      if (promised && choice.sampler.needs_history()) {
        late.push_back({&choice, sampling.size(), position});
        sampling.push_back(choice.sampler.settings(position));
        continue;
      }
      sampling.push_back(
          choice.sampler.row(position + i, drafts.first(static_cast<std::size_t>(i))));
    }
  }
}

}  // namespace rose::infer
