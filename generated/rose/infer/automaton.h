// Hold the automata of all rules in one table.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rose/infer/language.h"

namespace rose::infer {

/// States of all rules, numbered through. Every state leads to an end of its rule.
class Automaton {
 public:
  struct Call {
    std::int32_t rule_start, after;  ///< the called rule's first state; where it returns to
    bool operator==(const Call&) const = default;
  };
  struct Limits {
    std::size_t expanded = 400'000;  ///< states before and
    std::size_t states = 60'000;     ///< after they are made deterministic
  };

  /// Throws core::Error: invalid_argument when no text is in the language, unsupported when a rule
  /// calls itself before it reads a byte, resource_exhausted beyond the limits.
  Automaton(const Language& language, Language::Rule root, const Limits& limits);
  Automaton(const Language& language, Language::Rule root) : Automaton(language, root, Limits{}) {}

  std::int32_t start() const { return start_; }
  std::size_t size() const { return accepts_.size(); }
  int classes() const { return classes_; }
  int class_of(unsigned char byte) const { return class_of_[byte]; }
  /// The state after a byte, -1 when there is none.
  std::int32_t move(std::int32_t state, unsigned char byte) const {
    return moves_[index(state) * static_cast<std::size_t>(classes_) + class_of_[byte]];
  }
  std::span<const std::int32_t> moves(std::int32_t state) const {  ///< by class
    const auto n = static_cast<std::size_t>(classes_);
    return std::span(moves_).subspan(index(state) * n, n);
  }
  std::span<const Call> calls(std::int32_t state) const {
    const std::size_t from = first_call_[index(state)];
    return std::span(calls_).subspan(from, first_call_[index(state) + 1] - from);
  }
  bool accepts(std::int32_t state) const { return accepts_[index(state)] != 0; }  ///< a rule's end
  bool only_ends(std::int32_t state) const { return only_ends_[index(state)] != 0; }

 private:
  // The table.
  friend class AutomatonBuilder;
  static std::size_t index(std::int32_t state) { return static_cast<std::size_t>(state); }

  std::int32_t start_ = 0;
  int classes_ = 0;
  std::array<std::uint8_t, 256> class_of_{};
  std::vector<std::int32_t> moves_;  // [states, classes]
  std::vector<std::uint8_t> accepts_, only_ends_;
  std::vector<std::size_t> first_call_;
  std::vector<Call> calls_;
};

/// The smallest machine for an expression that calls no rule; no states when it has no text.
Machine smallest_machine(Language& language, Language::Expression expression);

}  // namespace rose::infer
