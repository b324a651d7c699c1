// Describe a set of byte strings by rules.

#include "rose/infer/language.h"

namespace rose::infer {

ByteSet byte_range(unsigned char first, unsigned char last) {
  ByteSet set;
  for (unsigned b = first; b <= last; ++b) set.set(b);
  return set;
}

Language::Expression Language::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<Expression>(nodes_.size() - 1);
}

Language::Expression Language::bytes(const ByteSet& set) {
  return add({.kind = Kind::bytes, .bytes = set});
}
Language::Expression Language::literal(std::string_view text) {
  std::vector<Expression> parts;
  for (const char c : text) {
    const auto b = static_cast<unsigned char>(c);
    parts.push_back(bytes(byte_range(b, b)));
  }
  return sequence(std::move(parts));
}
Language::Expression Language::sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = Kind::sequence, .parts = std::move(parts)});
}
Language::Expression Language::choice(std::vector<Expression> parts) {
  if (parts.size() == 1) return parts.front();
  return add({.kind = Kind::choice, .parts = std::move(parts)});
}
Language::Expression Language::repeat(Expression part, std::int32_t least, std::int32_t most) {
  return add({.kind = Kind::repeat, .parts = {part}, .least = least, .most = most});
}
Language::Expression Language::call(Rule rule) {
  return add({.kind = Kind::call, .index = rule});
}
Language::Expression Language::machine(Machine machine) {
  machines_.push_back(std::move(machine));
  return add({.kind = Kind::machine, .index = static_cast<std::int32_t>(machines_.size() - 1)});
}

Language::Rule Language::rule(std::string name) {
  rules_.emplace_back(std::move(name), -1);
  return static_cast<Rule>(rules_.size() - 1);
}
void Language::define(Rule rule, Expression expression) {
  rules_[static_cast<std::size_t>(rule)].second = expression;
}

}  // namespace rose::infer
