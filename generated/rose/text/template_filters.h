// Keep template_filters.h.

#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "rose/text/template_interpreter.h"
#include "rose/text/template_natives.h"

namespace rose::text::jinja {

// Follow a path of attributes with dots between.
class AttributePath {
 public:
  AttributePath() = default;
  explicit AttributePath(const Value& attribute);
  Value of(Value value, Meter& meter, const Value* fallback = nullptr) const;

 private:
  std::vector<Value> parts_;
};

inline const Native* find_native(std::span<const Native> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Native& native) { return native.name == name; });
  return found == table.end() ? nullptr : &*found;
}

Value walk_once(const Value& list, Meter& meter);  ///< an iterator over what is already there
const Native* find_sequence_filter(std::string_view name);

}  // namespace rose::text::jinja
