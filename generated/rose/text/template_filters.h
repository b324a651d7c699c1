// What filters share.

#pragma once

#include <string_view>
#include <vector>

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

Value walk_once(const Value& list, Meter& meter);  ///< an iterator over what is already there
const Native* find_sequence_filter(std::string_view name);

}  // namespace rose::text::jinja
