// Follow all readings of a text at once.

#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rose/infer/automaton.h"

namespace rose::infer {

/// One reading: a state, and the stack to return to; stack -1 is the bottom.
struct Thread {
  std::int32_t state = 0, stack = -1;
  bool operator==(const Thread&) const = default;
};

/// Stacks as linked cells, each pair (below, state) once.
class Stacks {
 public:
  struct Cell {
    std::int32_t below, after;
  };
  std::int32_t push(std::int32_t below, std::int32_t after);
  const Cell& cell(std::int32_t stack) const { return cells_[static_cast<std::size_t>(stack)]; }

 private:
  std::vector<Cell> cells_;
  std::unordered_map<std::uint64_t, std::int32_t> known_;
};

/// Completes threads[from, end) by all calls and returns that need no byte. Throws
/// resource_exhausted when a text has too many readings.
void close_threads(const Automaton& automaton, Stacks& stacks, std::vector<Thread>& threads,
                   std::size_t from);

/// Appends to `threads` the complete set after `byte` from the set threads[begin, end).
void step_threads(const Automaton& automaton, Stacks& stacks, std::vector<Thread>& threads,
                  std::size_t begin, std::size_t end, unsigned char byte);

}  // namespace rose::infer
