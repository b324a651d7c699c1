// Describe a set of byte strings by rules.

#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rose::infer {

using ByteSet = std::bitset<256>;

/// The bytes from first to last, both included.
ByteSet byte_range(unsigned char first, unsigned char last);

/// A finite automaton, spelt out. State 0 starts; the moves of a state may overlap.
struct Machine {
  struct State {
    bool accepts = false;
    std::vector<std::pair<ByteSet, std::int32_t>> moves{};
  };
  std::vector<State> states;
};

/// Rules under construction. An expression is a handle, and may be used several times.
class Language {
 public:
  using Expression = std::int32_t;
  using Rule = std::int32_t;
  static constexpr std::int32_t unbounded = -1;

  enum class Kind : std::uint8_t { bytes, sequence, choice, repeat, call, machine };
  struct Node {
    Kind kind = Kind::choice;
    ByteSet bytes{};
    std::vector<Expression> parts{};
    std::int32_t least = 0, most = unbounded;  // of a repetition
    std::int32_t index = 0;                    // of the called rule, or of the machine
  };

  Expression bytes(const ByteSet& set);
  Expression literal(std::string_view text);
  Expression sequence(std::vector<Expression> parts);  ///< of none: the empty text
  Expression choice(std::vector<Expression> parts);    ///< of none: no text at all
  Expression repeat(Expression part, std::int32_t least, std::int32_t most);
  Expression optional(Expression part) { return repeat(part, 0, 1); }
  Expression call(Rule rule);
  Expression machine(Machine machine);

  Rule rule(std::string name);  ///< to be defined later, so that rules can call each other
  void define(Rule rule, Expression expression);

  const Node& node(Expression e) const { return nodes_[static_cast<std::size_t>(e)]; }
  const Machine& machine_of(const Node& n) const {
    return machines_[static_cast<std::size_t>(n.index)];
  }
  Expression definition(Rule rule) const { return rules_[static_cast<std::size_t>(rule)].second; }
  const std::string& name(Rule rule) const { return rules_[static_cast<std::size_t>(rule)].first; }
  std::size_t rules() const { return rules_.size(); }

 private:
  Expression add(Node node);
  std::vector<Node> nodes_;
  std::vector<Machine> machines_;
  std::vector<std::pair<std::string, Expression>> rules_;
};

}  // namespace rose::infer
