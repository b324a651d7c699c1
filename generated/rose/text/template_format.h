// How one value is to be formatted.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "rose/text/template_natives.h"

namespace rose::text::jinja {

// Hold how one value is to be formatted.
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false, zero = false, grouped = false;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

/// Reads digits at `at` and moves past them; at most 1,000,000,000.
inline std::int64_t read_number(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min<std::int64_t>(value * 10 + (text[at++] - '0'), 1'000'000'000);
  }
  return value;
}

std::string format_number(const Value& value, const Spec& spec, Meter& meter);
std::string format_text(std::string text, const Spec& spec, Meter& meter);

}  // namespace rose::text::jinja
