// Bind arguments and call.

#include "rose/text/template_natives.h"

#include <algorithm>
#include <memory>

namespace rose::text::jinja {

// Put the arguments of a call in the order of the parameters.
Bound bind(const Native& native, Arguments& arguments) {
  Bound bound;
  bound.all = &arguments;
  if (native.parameters == "*") return bound;
  const std::string name(native.name);
  std::string_view rest = native.parameters;
  const bool positional_only = rest.starts_with('/');
  if (positional_only) rest.remove_prefix(1);
  std::size_t used = 0;
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view parameter = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const bool optional = parameter.ends_with('=');
    if (optional) parameter.remove_suffix(1);
    std::optional<Value> value;
    if (bound.values.size() < arguments.positional.size()) {
      value = arguments.positional[bound.values.size()];
    }
    for (const auto& [keyword, given] : arguments.keyword) {
      if (positional_only || keyword != parameter) continue;
      if (value) fail(std::string(name).append(" got two values for '").append(keyword) + "'");
      value = given;
      ++used;
    }
    if (!value && !optional) fail(name + " needs the argument '" + std::string(parameter) + "'");
    bound.values.push_back(std::move(value));
  }
  if (arguments.positional.size() > bound.values.size()) fail(name + " got too many arguments");
  if (used < arguments.keyword.size()) {
    fail(name + " does not take the argument '" + arguments.keyword[0].first + "' by name");
  }
  return bound;
}

Value call_native(Host& host, const Native& native, const Value& self, Arguments& arguments) {
  const Bound bound = bind(native, arguments);
  return native.call(host, self, bound);
}

Value bound_method(const Native& native, const Value& self) {
  auto function = std::make_shared<Function>();
  function->native = &native;
  function->self = self;
  function->depth = self.depth();
  return Value::object(Kind::function, std::move(function));
}

}  // namespace rose::text::jinja
