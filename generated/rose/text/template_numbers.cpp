// Numbers to text and back.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "rose/text/template_format.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {

namespace {

// Write a number in a base or with a number of decimals.
std::string real_digits(double value, const Spec& spec, char type) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
  const int precision =
      static_cast<int>(spec.precision < 0 ? 6 : std::min<std::int64_t>(spec.precision, 340));
  std::string buffer(800, '\0');
  const auto form = type == 'f' || type == 'F' || type == '%' ? std::chars_format::fixed
                    : type == 'e' || type == 'E'              ? std::chars_format::scientific
                                                              : std::chars_format::general;
  const int digits = form == std::chars_format::general ? std::max(precision, 1) : precision;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, form, digits);
  buffer.resize(static_cast<std::size_t>(end.ptr - buffer.data()));
  if (type == 'E' || type == 'G')
    std::transform(buffer.begin(), buffer.end(), buffer.begin(),
                   [](char c) { return c == 'e' ? 'E' : c; });
  return buffer;
}

std::string number_digits(const Value& value, const Spec& spec, char type) {
  switch (type) {
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G': return real_digits(std::fabs(value.real()), spec, type);
    case '%': return real_digits(std::fabs(value.real()) * 100, spec, type) + "%";
    default: break;
  }
  const std::int64_t integer = value.integer();
  const std::uint64_t magnitude =
      integer < 0 ? 0 - static_cast<std::uint64_t>(integer) : static_cast<std::uint64_t>(integer);
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::array<char, 72> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base).ptr;
  std::string digits(buffer.data(), end);
  if (type == 'X') digits = upper(digits);
  if (spec.alternate && base != 10) digits = std::string("0") + type + digits;
  return digits;
}

// Put sign, digits and padding together.
std::string pad(const std::string& sign, const std::string& body, const Spec& spec,
                char default_align, Meter& meter) {
  const auto length = static_cast<std::int64_t>(count_code_points(sign) + count_code_points(body));
  const std::int64_t missing = spec.width - length;
  if (missing <= 0) return sign + body;
  const char align = spec.align != 0 ? spec.align : spec.zero ? '=' : default_align;
  const std::string fill = spec.zero && spec.align == 0 ? "0" : spec.fill;
  meter.will_make(static_cast<std::uint64_t>(missing) * fill.size() + sign.size() + body.size());
  const std::int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string left, right;
  for (std::int64_t i = 0; i < missing; ++i) (i < before ? left : right) += fill;
  return align == '=' ? sign + left + body : left + sign + body + right;
}

}  // namespace

// Format a number or a text to a specification.
std::string format_number(const Value& value, const Spec& spec, Meter& meter) {
  char type = spec.type;
  if (type == 'i' || type == 'u') type = 'd';
  const bool integral = type == 'd' || type == 'x' || type == 'X' || type == 'o' || type == 'b';
  if (integral && !value.is_integer()) fail(std::string("format '") + type + "' needs an integer");
  if (value.is(Kind::real) && type == 0) {
    Spec plain;
    const std::string text = spec.precision < 0 ? real_repr(std::fabs(value.real())) : "";
    if (spec.precision >= 0)
      fail("a precision without a type is not supported", "write f, e or g after it");
    return pad(std::signbit(value.real()) ? "-"
               : spec.sign == '-'         ? ""
                                          : std::string(1, spec.sign),
               text, spec, '>', meter);
  }
  const bool negative = value.is_integer()
                            ? value.integer() < 0
                            : std::signbit(value.real()) && !std::isnan(value.real());
  std::string body = number_digits(value, spec, type == 0 ? 'd' : type);
  if (spec.grouped) {
    std::size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
    for (; whole > 3; whole -= 3) body.insert(whole - 3, ",");
  }
  return pad(negative           ? "-"
             : spec.sign == '-' ? ""
                                : std::string(1, spec.sign),
             body, spec, '>', meter);
}

std::string format_text(std::string text, const Spec& spec, Meter& meter) {
  if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<std::size_t>(spec.precision)));
  return pad("", text, spec, '<', meter);
}

// Read numbers as int() and float() do.
namespace {
/// Strips spaces and the single underscores between digits; nothing where one stands wrong.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string out;
  text = strip(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() ||
               !std::isalnum(static_cast<unsigned char>(text[i - 1])) ||
               !std::isalnum(static_cast<unsigned char>(text[i + 1]))) {
      return std::nullopt;
    }
  }
  return out;
}
}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  auto digits = plain_digits(text);
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.size() > 2 && rest[0] == '0') {
    const char mark = static_cast<char>(rest[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      base = marked;
      rest.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  std::int64_t value = 0;
  const std::string signed_text = (negative ? "-" : "") + std::string(rest);
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  const char* last = signed_text.data() + signed_text.size();
  const auto [end, error] = std::from_chars(signed_text.data(), last, value, base);
  if (end == last && error == std::errc::result_out_of_range)
    fail("the integer does not fit 64 bits");
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

// Read a float.
std::optional<double> parse_real(std::string_view text) {
  const auto digits = plain_digits(text);
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  const std::string_view unsigned_part = rest.starts_with('-') ? rest.substr(1) : rest;
  if (unsigned_part.empty() || unsigned_part[0] == '-' || unsigned_part[0] == '+')
    return std::nullopt;
  if (unsigned_part.find_first_of("nN(") == 0 && lower(unsigned_part) != "nan") return std::nullopt;
  double value = 0;
  const char* last = rest.data() + rest.size();
  const auto [end, error] = std::from_chars(rest.data(), last, value);
  if (end != last) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    return std::strtod(std::string(rest).c_str(), nullptr);
  if (error != std::errc()) return std::nullopt;
  return value;
}

// Round half to even, on the exact decimal value.
Value round_number(const Value& value, std::int64_t digits) {
  if (value.is_integer()) {
    if (digits >= 0) return Value(value.integer());
    if (digits < -18) return Value(std::int64_t{0});
    std::int64_t unit = 1;
    for (std::int64_t i = 0; i < -digits; ++i) unit *= 10;
    std::int64_t rest = value.integer() % unit;
    if (rest < 0) rest += unit;
    const std::int64_t down = value.integer() - rest;
    const bool up = rest > unit - rest || (rest == unit - rest && down / unit % 2 != 0);
    return Value(up ? down + unit : down);
  }
  const double real = value.real();
  if (!std::isfinite(real) || digits > 308) return value;
  if (digits < -308) return Value(std::copysign(0.0, real));
  if (digits >= 0) {
    std::array<char, 700> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), real,
                                   std::chars_format::fixed, static_cast<int>(digits))
                         .ptr;
    double rounded = 0;
    std::from_chars(buffer.data(), end, rounded);
    return Value(rounded);
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return Value(std::nearbyint(real / unit) * unit);
}

}  // namespace rose::text::jinja
