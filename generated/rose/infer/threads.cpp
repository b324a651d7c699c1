// Follow all readings of a text at once.

#include "rose/infer/threads.h"

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"

namespace rose::infer {

namespace {

constexpr std::size_t most_threads = 512;

void add(std::vector<Thread>& threads, std::size_t from, Thread t) {
  const auto begin = threads.begin() + static_cast<std::ptrdiff_t>(from);
  if (std::find(begin, threads.end(), t) != threads.end()) return;
  if (threads.size() - from >= most_threads)
    throw core::Error(core::Code::resource_exhausted,
                      fmt::format("the text has more than {} readings", most_threads))
        .in("grammar")
        .hint("the grammar is ambiguous: let its alternatives begin with different bytes");
  threads.push_back(t);
}

}  // namespace

std::int32_t Stacks::push(std::int32_t below, std::int32_t after) {
  constexpr unsigned half = 32;
  const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(below)) << half |
                            static_cast<std::uint32_t>(after);
  const auto [at, added] = known_.try_emplace(key, static_cast<std::int32_t>(cells_.size()));
  if (added) cells_.push_back({below, after});
  return at->second;
}

void close_threads(const Automaton& a, Stacks& stacks, std::vector<Thread>& threads,
                   std::size_t from) {
  for (std::size_t i = from; i < threads.size(); ++i) {
    const Thread t = threads[i];
    if (t.stack >= 0 && a.accepts(t.state)) {
      const Stacks::Cell cell = stacks.cell(t.stack);
      add(threads, from, {cell.after, cell.below});
    }
    for (const Automaton::Call& call : a.calls(t.state)) {
      const std::int32_t stack =
          a.only_ends(call.after) ? t.stack : stacks.push(t.stack, call.after);
      add(threads, from, {call.rule_start, stack});
    }
  }
}

void step_threads(const Automaton& a, Stacks& stacks, std::vector<Thread>& threads,
                  std::size_t begin, std::size_t end, unsigned char byte) {
  const std::size_t from = threads.size();
  for (std::size_t i = begin; i < end; ++i) {
    const Thread t = threads[i];
    const std::int32_t to = a.move(t.state, byte);
    if (to >= 0) add(threads, from, {to, t.stack});
  }
  close_threads(a, stacks, threads, from);
}

}  // namespace rose::infer
