// Write numbers between bounds.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rose/core/json.h"
#include "rose/infer/language.h"

namespace rose::infer {

/// A number as digits: no leading zeros before the point, no trailing ones after it.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction{};
};
Decimal decimal_of(const core::json::value& number);

struct NumberRange {
  struct Bound {
    Decimal value{};
    bool excluded = false;
  };
  std::optional<Bound> least{}, most{};
  bool integer = false;
  std::int32_t multiple = 1;  ///< then integers only
};
Language::Expression json_number(Language& language, const NumberRange& range);

}  // namespace rose::infer
