// Answer what a template asks about its loop.

#include <utility>

#include "rose/text/template_interpreter.h"

namespace rose::text::jinja {

// Answer what a template asks about its loop.
bool Loop::advance() {
  std::optional<Value> item = ahead ? std::exchange(ahead, std::nullopt) : source();
  if (!item) return false;
  ++index0;
  before = std::exchange(current, std::move(*item));
  return true;
}

const std::optional<Value>& Loop::peek() {
  if (!ahead) ahead = source();
  return ahead;
}

std::int64_t Loop::length() {
  if (!known_length) {
    std::vector<Value> rest;
    while (auto item = source()) rest.push_back(std::move(*item));
    known_length = static_cast<std::int64_t>(rest.size()) + index0 + 1 + (ahead ? 1 : 0);
    source = [rest = std::move(rest), i = std::size_t{0}]() mutable -> std::optional<Value> {
      if (i == rest.size()) return std::nullopt;
      return rest[i++];
    };
  }
  return *known_length;
}

namespace {

// Let a loop cycle through values and notice a change.
constexpr Native kLoopMethods[] = {
    {"cycle", "*",
     [](auto&, auto& s, auto& a) {
       const auto& choices = a.all->positional;
       if (choices.empty() || !a.all->keyword.empty())
         fail("loop.cycle needs values to cycle through");
       return choices[static_cast<std::size_t>(s.template as<Loop>().index0) % choices.size()];
     }},
    {"changed", "*",
     [](auto& in, auto& s, auto& a) {
       Value now = Value::tuple(a.all->positional);
       auto& last = s.template as<Loop>().last_changed;
       if (last && equal(*last, now, in.meter())) return Value(false);
       last = std::move(now);
       return Value(true);
     }},
};

}  // namespace

// Answer loop.index, loop.last and their like.
std::optional<Value> Loop::attribute(std::string_view name) {
  if (name == "index") return Value(index0 + 1);
  if (name == "index0") return Value(index0);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(!peek().has_value());
  if (name == "length") return Value(length());
  if (name == "revindex") return Value(length() - index0);
  if (name == "revindex0") return Value(length() - index0 - 1);
  if (name == "depth") return Value(depth0 + 1);
  if (name == "depth0") return Value(depth0);
  if (name == "previtem") {
    return index0 == 0 ? Value::undefined("there is no previous item") : before;
  }
  if (name == "nextitem") {
    return peek() ? *peek() : Value::undefined("there is no next item");
  }
  if (const Native* native = find_native(kLoopMethods, name)) {
    return bound_method(*native, Value::object(Kind::loop, shared_from_this()));
  }
  return std::nullopt;
}

std::string Loop::shown() const {
  return "<LoopContext " + std::to_string(index0 + 1) + "/" +
         (known_length ? std::to_string(*known_length) : "?") + ">";
}

std::optional<Value> Macro::attribute(std::string_view name) {
  if (name == "name") return Value(definition->text);
  return std::nullopt;
}

std::string Macro::shown() const {
  return "<Macro '" + definition->text + "'>";
}

// Render a recursive loop for the children of an item.
Value Interpreter::call_loop(Loop& loop, Arguments& arguments) {
  if (loop.statement == nullptr)
    fail("only a loop marked 'recursive' can be called, while it runs");
  if (arguments.positional.size() != 1 || !arguments.keyword.empty()) {
    fail("loop(...) takes one argument");
  }
  Writer out(meter());
  run_loop(*loop.statement, loop.scope, out, arguments.positional[0], loop.depth0 + 1);
  return Value(out.take());
}

}  // namespace rose::text::jinja
