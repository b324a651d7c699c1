// Make deterministic automata of the rules.

#include "rose/infer/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "rose/core/error.h"

namespace rose::infer {

// Keep both forms while building.
class AutomatonBuilder {
 public:
  AutomatonBuilder(const Language& language, const Automaton::Limits& limits)
      : language_(language), limits_(limits), rules_(language.rules()) {}
  void run(Language::Rule root, Automaton& out);

 private:
  struct Loose {  // a state with free moves
    std::vector<std::int32_t> free{};
    std::vector<std::pair<ByteSet, std::int32_t>> moves{};
    std::vector<std::pair<Language::Rule, std::int32_t>> calls{};
  };
  struct Strict {  // a set of those
    bool accepts = false, alive = false;
    std::vector<std::int32_t> moves{};  // by class
    std::vector<std::pair<Language::Rule, std::int32_t>> calls{};
  };
  struct RuleParts {
    std::int32_t loose_start = -1, loose_end = -1, start = -1;
    bool nullable = false;
  };
  using Subset = std::vector<std::int32_t>;

  std::int32_t add_loose();
  Loose& loose(std::int32_t i) { return loose_[static_cast<std::size_t>(i)]; }
  Strict& strict(std::int32_t i) { return strict_[static_cast<std::size_t>(i)]; }
  RuleParts& rule(Language::Rule r) { return rules_[static_cast<std::size_t>(r)]; }

  void expand_rules(Language::Rule root);
  std::int32_t expand(Language::Expression e, std::int32_t from);
  std::int32_t expand_repeat(const Language::Node& n, std::int32_t from);
  void find_classes();
  Subset closed(Subset states, std::int32_t end);
  void determinise(RuleParts& parts);
  void find_alive();
  void refuse_left_recursion();
  void write(Language::Rule root, Automaton& out);

  const Language& language_;
  const Automaton::Limits& limits_;
  std::vector<RuleParts> rules_;
  std::vector<Language::Rule> reachable_;
  std::vector<Loose> loose_;
  std::vector<Strict> strict_;
  std::array<std::uint8_t, 256> class_of_{};
  std::vector<unsigned char> byte_of_class_;
};

// Glue the parts of an expression by free moves.
std::int32_t AutomatonBuilder::add_loose() {
  if (loose_.size() >= limits_.expanded)
    throw core::Error(core::Code::resource_exhausted,
                      fmt::format("the language needs more than {} states", limits_.expanded))
        .in("grammar")
        .hint("large bounds of nested repetitions multiply; make them smaller or leave them out");
  loose_.emplace_back();
  return static_cast<std::int32_t>(loose_.size() - 1);
}

void AutomatonBuilder::expand_rules(Language::Rule root) {
  reachable_.push_back(root);
  rule(root).loose_start = add_loose();
  for (std::size_t i = 0; i < reachable_.size(); ++i) {
    RuleParts& parts = rule(reachable_[i]);
    const Language::Expression body = language_.definition(reachable_[i]);
    if (body < 0)
      throw core::Error(core::Code::invalid_argument,
                        fmt::format("rule {} is not defined", language_.name(reachable_[i])))
          .in("grammar");
    parts.loose_end = expand(body, parts.loose_start);
  }
}

std::int32_t AutomatonBuilder::expand(Language::Expression e, std::int32_t from) {
  const Language::Node& n = language_.node(e);
  std::int32_t to = from;
  switch (n.kind) {
    case Language::Kind::bytes:
      to = add_loose();
      loose(from).moves.emplace_back(n.bytes, to);
      return to;
    case Language::Kind::sequence:
      for (const auto part : n.parts) to = expand(part, to);
      return to;
    case Language::Kind::choice: {
      to = add_loose();
      for (const auto part : n.parts) {
        const std::int32_t begin = add_loose();
        loose(from).free.push_back(begin);
        const std::int32_t end = expand(part, begin);
        loose(end).free.push_back(to);
      }
      return to;
    }
    case Language::Kind::repeat: return expand_repeat(n, from);
    case Language::Kind::call:
      to = add_loose();
      loose(from).calls.emplace_back(n.index, to);
      if (rule(n.index).loose_start < 0) {
        rule(n.index).loose_start = add_loose();
        reachable_.push_back(n.index);
      }
      return to;
    case Language::Kind::machine: break;
  }
  const Machine& machine = language_.machine_of(n);
  to = add_loose();
  const auto first = static_cast<std::int32_t>(loose_.size());
  for (std::size_t i = 0; i < machine.states.size(); ++i) add_loose();
  if (!machine.states.empty()) loose(from).free.push_back(first);
  for (std::size_t i = 0; i < machine.states.size(); ++i) {
    Loose& state = loose(first + static_cast<std::int32_t>(i));
    for (const auto& [set, target] : machine.states[i].moves)
      state.moves.emplace_back(set, first + target);
    if (machine.states[i].accepts) state.free.push_back(to);
  }
  return to;
}

std::int32_t AutomatonBuilder::expand_repeat(const Language::Node& n, std::int32_t from) {
  for (std::int32_t i = 0; i < n.least; ++i) from = expand(n.parts[0], from);
  const std::int32_t to = add_loose();
  if (n.most == Language::unbounded) {
    const std::int32_t loop = add_loose();
    loose(from).free.push_back(loop);
    const std::int32_t end = expand(n.parts[0], loop);
    loose(end).free.push_back(loop);
    loose(loop).free.push_back(to);
    return to;
  }
  for (std::int32_t i = n.least; i < n.most; ++i) {
    loose(from).free.push_back(to);
    const std::int32_t begin = add_loose();
    loose(from).free.push_back(begin);
    from = expand(n.parts[0], begin);
  }
  loose(from).free.push_back(to);
  return to;
}

// Find the bytes that nothing tells apart.
void AutomatonBuilder::find_classes() {
  std::array<int, 256> of{};
  int count = 1;
  std::unordered_set<ByteSet> seen;
  for (const Loose& state : loose_) {
    for (const auto& [set, target] : state.moves) {
      if (!seen.insert(set).second) continue;
      std::map<std::pair<int, bool>, int> split;
      std::array<int, 256> next{};
      int fresh = 0;
      for (std::size_t b = 0; b < of.size(); ++b) {
        const auto [at, added] = split.try_emplace({of[b], set[b]}, fresh);
        if (added) ++fresh;
        next[b] = at->second;
      }
      if (fresh > count) of = next, count = fresh;
    }
  }
  byte_of_class_.resize(static_cast<std::size_t>(count));
  for (std::size_t b = of.size(); b-- > 0;) {
    class_of_[b] = static_cast<std::uint8_t>(of[b]);
    byte_of_class_[static_cast<std::size_t>(of[b])] = static_cast<unsigned char>(b);
  }
}

// Make sets of states the new states.
AutomatonBuilder::Subset AutomatonBuilder::closed(Subset states, std::int32_t end) {
  std::set<std::int32_t> seen(states.begin(), states.end());
  while (!states.empty()) {
    const std::int32_t s = states.back();
    states.pop_back();
    for (const std::int32_t t : loose(s).free)
      if (seen.insert(t).second) states.push_back(t);
  }
  std::erase_if(seen, [&](std::int32_t s) {  // they only passed on
    return s != end && loose(s).moves.empty() && loose(s).calls.empty();
  });
  return {seen.begin(), seen.end()};
}

void AutomatonBuilder::determinise(RuleParts& parts) {
  std::map<Subset, std::int32_t> known;
  std::vector<Subset> todo;
  const auto state_of = [&](Subset loose_states) {
    const auto [at, added] = known.try_emplace(closed(std::move(loose_states), parts.loose_end),
                                               static_cast<std::int32_t>(strict_.size()));
    if (added) {
      if (strict_.size() >= limits_.states)
        throw core::Error(core::Code::resource_exhausted,
                          fmt::format("the language needs more than {} states", limits_.states))
            .in("grammar")
            .hint("simplify its patterns, or make the bounds of its repetitions smaller");
      strict_.emplace_back();
      strict_.back().accepts = std::ranges::binary_search(at->first, parts.loose_end);
      todo.push_back(at->first);
    }
    return at->second;
  };
  parts.start = static_cast<std::int32_t>(strict_.size());
  std::int32_t current = state_of({parts.loose_start});
  for (std::size_t i = 0; i < todo.size(); ++i, ++current) {
    const Subset from = todo[i];
    std::vector<std::int32_t> moves(byte_of_class_.size(), -1);
    for (std::size_t c = 0; c < moves.size(); ++c) {
      Subset targets;
      for (const std::int32_t s : from)
        for (const auto& [set, target] : loose(s).moves)
          if (set[byte_of_class_[c]]) targets.push_back(target);
      if (!targets.empty()) moves[c] = state_of(std::move(targets));
    }
    std::map<Language::Rule, Subset> called;
    for (const std::int32_t s : from)
      for (const auto& [callee, after] : loose(s).calls) called[callee].push_back(after);
    for (auto& [callee, after] : called) {
      const std::int32_t returned = state_of(std::move(after));  // may move all states in memory
      strict(current).calls.emplace_back(callee, returned);
    }
    strict(current).moves = std::move(moves);
  }
}

// Keep what can come to an end.
void AutomatonBuilder::find_alive() {
  const auto living = [&](std::int32_t s) { return s >= 0 && strict(s).alive; };
  const auto callable = [&](const auto& call) {
    return living(rule(call.first).start) && living(call.second);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = strict_.size(); i-- > 0;) {
      Strict& s = strict_[i];
      if (s.alive) continue;
      s.alive = s.accepts || std::ranges::any_of(s.moves, living) ||
                std::ranges::any_of(s.calls, callable);
      changed = changed || s.alive;
    }
  }
  for (Strict& s : strict_) {
    for (std::int32_t& m : s.moves) m = living(m) ? m : -1;
    std::erase_if(s.calls, [&](const auto& call) { return !callable(call); });
  }
}

// Refuse a rule that begins with itself.
void AutomatonBuilder::refuse_left_recursion() {
  // The rules that can be called before rule r reads a byte; whether it can end before that.
  const auto beginning = [&](Language::Rule r) {
    std::set<std::int32_t> states{rule(r).start};
    std::vector<std::int32_t> todo{rule(r).start};
    std::set<Language::Rule> called;
    bool ends = false;
    while (!todo.empty()) {
      const Strict& s = strict(todo.back());
      todo.pop_back();
      ends = ends || s.accepts;
      for (const auto& [callee, after] : s.calls) {
        called.insert(callee);
        if (rule(callee).nullable && states.insert(after).second) todo.push_back(after);
      }
    }
    return std::pair(called, ends);
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto r : reachable_) {
      if (rule(r).nullable || !beginning(r).second) continue;
      rule(r).nullable = changed = true;
    }
  }
  std::map<Language::Rule, std::set<Language::Rule>> first;
  for (const auto r : reachable_) first[r] = beginning(r).first;
  for (const auto r : reachable_) {
    std::set<Language::Rule> seen;
    std::vector<Language::Rule> todo(first[r].begin(), first[r].end());
    while (!todo.empty()) {
      const Language::Rule q = todo.back();
      todo.pop_back();
      if (q == r)
        throw core::Error(
            core::Code::unsupported,
            fmt::format("rule {} calls itself before it reads anything", language_.name(r)))
            .in("grammar")
            .hint("write the recursion as a repetition: a ::= b (\"+\" b)*");
      if (seen.insert(q).second) todo.insert(todo.end(), first[q].begin(), first[q].end());
    }
  }
}

// Write the table.
void AutomatonBuilder::run(Language::Rule root, Automaton& out) {
  expand_rules(root);
  find_classes();
  for (const auto r : reachable_) determinise(rule(r));
  find_alive();
  if (!strict(rule(root).start).alive)
    throw core::Error(core::Code::invalid_argument, "no text satisfies it").in("grammar");
  refuse_left_recursion();
  write(root, out);
}

void AutomatonBuilder::write(Language::Rule root, Automaton& out) {
  out.start_ = rule(root).start;
  out.classes_ = static_cast<int>(byte_of_class_.size());
  out.class_of_ = class_of_;
  for (const Strict& s : strict_) {
    out.moves_.insert(out.moves_.end(), s.moves.begin(), s.moves.end());
    out.accepts_.push_back(s.accepts ? 1 : 0);
    out.first_call_.push_back(out.calls_.size());
    for (const auto& [callee, after] : s.calls) out.calls_.push_back({rule(callee).start, after});
    const bool moves = std::ranges::any_of(s.moves, [](std::int32_t m) { return m >= 0; });
    out.only_ends_.push_back(s.accepts && !moves && s.calls.empty() ? 1 : 0);
  }
  out.first_call_.push_back(out.calls_.size());
}

Automaton::Automaton(const Language& language, Language::Rule root, const Limits& limits) {
  AutomatonBuilder(language, limits).run(root, *this);
}

// Merge the states that no text tells apart.
Machine smallest_machine(Language& language, Language::Expression expression) {
  const Language::Rule rule = language.rule("part");
  language.define(rule, expression);
  std::optional<Automaton> a;
  try {
    a.emplace(language, rule);
  } catch (const core::Error& error) {
    if (error.code() != core::Code::invalid_argument) throw;
    return {};
  }
  std::vector<std::int32_t> block(a->size());
  for (std::size_t s = 0; s < block.size(); ++s)
    block[s] = a->accepts(static_cast<std::int32_t>(s)) ? 1 : 0;
  std::vector<std::int32_t> members;  // one state of each block
  for (std::size_t before = 0;;) {
    std::map<std::vector<std::int32_t>, std::int32_t> known;
    std::vector<std::int32_t> next(block.size());
    members.clear();
    for (std::size_t i = 0; i < block.size(); ++i) {  // the start first: it becomes state 0
      const std::size_t s = (i + static_cast<std::size_t>(a->start())) % block.size();
      std::vector<std::int32_t> key{block[s]};
      for (const std::int32_t m : a->moves(static_cast<std::int32_t>(s)))
        key.push_back(m < 0 ? -1 : block[static_cast<std::size_t>(m)]);
      const auto [at, added] =
          known.try_emplace(std::move(key), static_cast<std::int32_t>(members.size()));
      if (added) members.push_back(static_cast<std::int32_t>(s));
      next[s] = at->second;
    }
    block.swap(next);
    if (members.size() == before) break;
    before = members.size();
  }
  Machine machine;
  for (const std::int32_t s : members) {
    std::map<std::int32_t, ByteSet> moves;
    for (unsigned b = 0; b < 256; ++b) {
      const std::int32_t to = a->move(s, static_cast<unsigned char>(b));
      if (to >= 0) moves[block[static_cast<std::size_t>(to)]].set(b);
    }
    Machine::State state{.accepts = a->accepts(s)};
    for (const auto& [to, set] : moves) state.moves.emplace_back(set, to);
    machine.states.push_back(std::move(state));
  }
  return machine;
}

}  // namespace rose::infer
