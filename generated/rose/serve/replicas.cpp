// Spread questions over engines that remember.

#include "rose/serve/replicas.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <thread>

#include "rose/core/hash.h"
#include "rose/infer/prefix_cache.h"

namespace rose::serve {

// Follow a prompt as far as it is known.
namespace {

/// One hash for each whole block: of the block and everything before it.
std::vector<std::uint64_t> beginnings(const Question& question) {
  constexpr std::size_t most = 256;  // blocks
  infer::PrefixHash hash{core::xxh3(question.salt), core::xxh3(question.adapter)};
  std::vector<std::uint64_t> out;
  const std::size_t n = std::min(question.prompt.size() / PrefixRoutes::block, most);
  for (std::size_t i = 0; i < n; ++i) {
    const std::span all(question.prompt);
    hash = infer::chain_hash(hash, all.subspan(i * PrefixRoutes::block, PrefixRoutes::block));
    out.push_back(hash.low);
  }
  return out;
}

}  // namespace

std::optional<std::size_t> PrefixRoutes::home(const Question& question) {
  std::optional<std::size_t> found;
  for (const std::uint64_t hash : beginnings(question)) {
    const auto entry = where_.find(hash);
    if (entry == where_.end()) break;
    found = entry->second.replica;
  }
  return found;
}

void PrefixRoutes::remember(const Question& question, std::size_t replica) {
  for (const std::uint64_t hash : beginnings(question)) {
    const auto [entry, fresh] = where_.try_emplace(hash);
    if (!fresh) order_.erase(entry->second.order);
    order_.push_front(hash);
    entry->second = {replica, order_.begin()};
  }
  for (; order_.size() > most_; order_.pop_back()) where_.erase(order_.back());
}

ReplicaBackend::ReplicaBackend(std::vector<std::unique_ptr<Backend>> replicas, double bound)
    : bound_(bound) {
  for (auto& backend : replicas) replicas_.push_back({.backend = std::move(backend)});
}

// Home, or to whoever has least to do.
std::size_t ReplicaBackend::choose(const Question& question) {
  const std::scoped_lock lock(mutex_);
  const std::size_t n = replicas_.size();
  std::optional<std::size_t> least;
  int open = 0, up = 0;
  ++turn_;
  for (std::size_t k = 0; k < n; ++k) {
    const std::size_t i = (turn_ + k) % n;
    if (!replicas_[i].backend->facts()) continue;
    ++up, open += *replicas_[i].open;
    if (!least || *replicas_[i].open < *replicas_[*least].open) least = i;
  }
  if (!least) return 0;  // it says why there is no engine
  const auto home = routes_.home(question);
  const double share = bound_ * (open + 1) / up;
  const bool fits =
      home && replicas_[*home].backend->facts() && *replicas_[*home].open < std::ceil(share);
  const std::size_t chosen = fits ? *home : *least;
  routes_.remember(question, chosen);
  ++*replicas_[chosen].open;
  return chosen;
}

// Submit to one, and count until it is over.
Backend::Number ReplicaBackend::submit(Question question, Listener listener) {
  const std::size_t i = choose(question);
  auto listen = [open = replicas_[i].open, left = std::max(question.sampling.n, 1),
                 listener = std::move(listener)](const Notice& notice) mutable {
    const bool choice_over = notice.event != nullptr && notice.event->finish.has_value();
    const bool over = notice.kind == Notice::Kind::refused || notice.kind == Notice::Kind::lost ||
                      (choice_over && --left == 0);
    if (over) --*open;
    listener(notice);
  };
  return replicas_[i].backend->submit(std::move(question), std::move(listen)) * replicas_.size() +
         i;
}

void ReplicaBackend::cancel(Number number) {
  replicas_[number % replicas_.size()].backend->cancel(number / replicas_.size());
}

// Add up, and end together.
std::optional<EngineFacts> ReplicaBackend::facts() const {
  std::optional<EngineFacts> out;
  for (const Replica& r : replicas_) {
    const auto facts = r.backend->facts();
    if (facts && out) out->pages += facts->pages, out->sequences += facts->sequences;
    if (facts && !out) out = facts;
  }
  return out;
}

infer::Statistics ReplicaBackend::statistics() const {
  infer::Statistics sum;
  for (const Replica& r : replicas_) {
    const infer::Statistics s = r.backend->statistics();
    for (auto field : {&infer::Statistics::steps, &infer::Statistics::running,
                       &infer::Statistics::waiting, &infer::Statistics::prompt_tokens,
                       &infer::Statistics::answer_tokens, &infer::Statistics::drafted,
                       &infer::Statistics::drafts_right, &infer::Statistics::preemptions,
                       &infer::Statistics::finished_stop, &infer::Statistics::finished_length,
                       &infer::Statistics::cancelled, &infer::Statistics::failed})
      sum.*field += s.*field;
    for (auto field : {&infer::PageCounts::free, &infer::PageCounts::cached,
                       &infer::PageCounts::referenced, &infer::PageCounts::in_flight})
      sum.pages.*field += s.pages.*field;
    sum.runner_seconds += s.runner_seconds, sum.step_seconds += s.step_seconds;
    sum.prefix.tokens_asked += s.prefix.tokens_asked;
    sum.prefix.tokens_found += s.prefix.tokens_found;
  }
  return sum;
}

// One answer of each, told together once the last has come.
template <class Each, class Told, class Ask>
void ask_all(std::size_t n, Told told, const Ask& ask) {
  struct Gathered {
    std::mutex mutex;
    std::vector<std::vector<Each>> answers;
    std::size_t left = 0;
    Told told;
  };
  auto all = std::make_shared<Gathered>();
  all->answers.resize(n), all->left = n, all->told = std::move(told);
  for (std::size_t i = 0; i < n; ++i)
    ask(i, [all, i](std::vector<Each> answer) {
      {
        const std::scoped_lock lock(all->mutex);
        all->answers[i] = std::move(answer);
        if (--all->left > 0) return;
      }
      std::vector<Each> flat;
      for (auto& some : all->answers) std::ranges::move(some, std::back_inserter(flat));
      all->told(std::move(flat));
    });
}

void ReplicaBackend::look(Looker told) {
  ask_all<infer::EngineView>(replicas_.size(), std::move(told), [&](std::size_t i, Looker one) {
    replicas_[i].backend->look(std::move(one));
  });
}

void ReplicaBackend::operate(const Operation& operation, Told told) {
  ask_all<Outcome>(replicas_.size(), std::move(told), [&](std::size_t i, Told one) {
    replicas_[i].backend->operate(operation, std::move(one));
  });
}

std::uint64_t ReplicaBackend::restarts() const {
  std::uint64_t n = 0;
  for (const Replica& r : replicas_) n += r.backend->restarts();
  return n;
}

std::size_t ReplicaBackend::ready() const {
  std::size_t n = 0;
  for (const Replica& r : replicas_) n += r.backend->ready();
  return n;
}

std::vector<int> ReplicaBackend::open() const {
  std::vector<int> out;
  out.reserve(replicas_.size());
  for (const Replica& r : replicas_) out.push_back(*r.open);
  return out;
}

void ReplicaBackend::stop() {
  std::vector<std::jthread> stopping;
  stopping.reserve(replicas_.size());
  for (Replica& r : replicas_) stopping.emplace_back([&r] { r.backend->stop(); });
}

}  // namespace rose::serve
