// Pass, fail or unknown.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

namespace rose::labs {

enum class Verdict : std::uint8_t { fail, pass, unknown };

// Read a number exactly.
struct Rational {
  std::int64_t over = 0, under = 1;  ///< in lowest terms, under > 0
  bool operator==(const Rational&) const = default;
};

/// -12, 1,250.50, 3/4, 75 %; nothing if it is anything else, or has too many digits.
inline std::optional<Rational> parse_number(std::string_view text) {
  std::int64_t value[2] = {0, 0}, scale = 1, sign = 1;
  int part = 0, digits = 0, point = 0, percent = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ' || (c == ',' && digits > 0)) continue;
    if (c == '-' && digits == 0 && part == 0 && sign == 1)
      sign = -1;
    else if (c >= '0' && c <= '9' && percent == 0) {
      if (++digits > 15) return {};
      value[part] = 10 * value[part] + (c - '0');
      if (point != 0) scale *= 10;
    } else if (c == '.' && point == 0 && part == 0)
      point = 1;
    else if (c == '/' && digits > 0 && part == 0 && point == 0)
      part = 1, digits = 0;
    else if (c == '%' && digits > 0 && percent == 0 && part == 0)
      percent = 1;
    else
      return {};
  }
  if (digits == 0 || (part == 1 && value[1] == 0)) return {};
  const std::int64_t under = (part == 1 ? value[1] : scale) * (percent != 0 ? 100 : 1);
  const std::int64_t common = std::gcd(value[0], under);
  return Rational{sign * value[0] / common, under / common};
}

// Find the last box, with its braces balanced.
inline std::optional<std::string> last_box(std::string_view text) {
  constexpr std::string_view mark = "\\boxed{";
  const std::size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return {};
  int depth = 1;
  for (std::size_t i = at + mark.size(); i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (depth == 0) return std::string(text.substr(at + mark.size(), i - at - mark.size()));
  }
  return {};
}

// Compare with the reference.
inline Verdict grade(std::string_view response, std::string_view reference) {
  const auto wanted = parse_number(reference);
  if (!wanted) return Verdict::unknown;
  const auto box = last_box(response);
  const auto given = box ? parse_number(*box) : std::nullopt;
  return given && *given == *wanted ? Verdict::pass : Verdict::fail;
}

}  // namespace rose::labs
