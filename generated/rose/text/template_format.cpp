// Keep template_format.cpp.

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <iterator>

#include "rose/text/template_natives.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

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

std::int64_t read_number(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = std::min<std::int64_t>(value * 10 + (text[at++] - '0'), 1'000'000'000);
  }
  return value;
}

// Write a number in a base or with a number of decimals.
std::string real_digits(double value, const Spec& spec, char type) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : "inf";
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : std::min<std::int64_t>(spec.precision, 340));
  std::string buffer(800, '\0');
  const auto form = type == 'f' || type == 'F' || type == '%' ? std::chars_format::fixed
                    : type == 'e' || type == 'E'              ? std::chars_format::scientific
                                                              : std::chars_format::general;
  const int digits = form == std::chars_format::general ? std::max(precision, 1) : precision;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, form, digits);
  buffer.resize(static_cast<std::size_t>(end.ptr - buffer.data()));
  if (type == 'E' || type == 'G') std::transform(buffer.begin(), buffer.end(), buffer.begin(), [](char c) { return c == 'e' ? 'E' : c; });
  return buffer;
}

std::string number_digits(const Value& value, const Spec& spec, char type) {
  switch (type) {
    case 'f': case 'F': case 'e': case 'E': case 'g': case 'G': return real_digits(std::fabs(value.real()), spec, type);
    case '%': return real_digits(std::fabs(value.real()) * 100, spec, type) + "%";
    default: break;
  }
  const std::int64_t integer = value.integer();
  const std::uint64_t magnitude = integer < 0 ? 0 - static_cast<std::uint64_t>(integer) : static_cast<std::uint64_t>(integer);
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::array<char, 72> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base).ptr;
  std::string digits(buffer.data(), end);
  if (type == 'X') digits = upper(digits);
  if (spec.alternate && base != 10) digits = std::string("0") + type + digits;
  return digits;
}

// Put sign, digits and padding together.
std::string pad(std::string sign, std::string body, const Spec& spec, char default_align, Meter& meter) {
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

std::string format_number(const Value& value, Spec spec, Meter& meter) {
  char type = spec.type;
  if (type == 'i' || type == 'u') type = 'd';
  const bool integral = type == 'd' || type == 'x' || type == 'X' || type == 'o' || type == 'b';
  if (integral && !value.is_integer()) fail(std::string("format '") + type + "' needs an integer");
  if (value.is(Kind::real) && type == 0) {
    Spec plain;
    const std::string text = spec.precision < 0 ? real_repr(std::fabs(value.real())) : "";
    if (spec.precision >= 0) fail("a precision without a type is not supported", "write f, e or g after it");
    return pad(std::signbit(value.real()) ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign), text, spec, '>', meter);
  }
  const bool negative = value.is_integer() ? value.integer() < 0 : std::signbit(value.real()) && !std::isnan(value.real());
  std::string body = number_digits(value, spec, type == 0 ? 'd' : type);
  if (spec.grouped) {
    std::size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
    for (; whole > 3; whole -= 3) body.insert(whole - 3, ",");
  }
  return pad(negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign), body, spec, '>', meter);
}

std::string format_text(std::string text, const Spec& spec, Meter& meter) {
  if (spec.precision >= 0) text.resize(byte_offset(text, static_cast<std::size_t>(spec.precision)));
  return pad("", std::move(text), spec, '<', meter);
}

}  // namespace

// Format as the % operator of texts does.
std::string percent_format(const std::string& format, const Value& arguments, Meter& meter) {
  Writer out(meter);
  std::size_t used = 0;
  bool named = false;
  const bool tuple = arguments.is(Kind::tuple);
  const auto next = [&]() -> Value {
    if (tuple && used < arguments.items().size()) return arguments.items()[used++];
    if (!tuple && used++ == 0) return arguments;
    fail("there are too few values for the format");
  };
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t percent = std::min(format.find('%', at), format.size());
    out << std::string_view(format).substr(at, percent - at);
    if (percent == format.size()) break;
    at = percent + 1;
    Value value;
    bool given = false;
    if (at < format.size() && format[at] == '(') {
      const std::size_t close = format.find(')', at);
      if (close == format.npos || !arguments.is(Kind::dict)) fail("%(name) needs a dictionary");
      const Value* found = arguments.as<Dict>().member(std::string_view(format).substr(at + 1, close - at - 1));
      if (found == nullptr) fail("a key of the format is not in the dictionary");
      value = *found;
      given = named = true;
      at = close + 1;
    }
    Spec spec;
    bool left = false;
    for (; at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos; ++at) {
      const char flag = format[at];
      if (flag == '-') left = true;
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
      if (flag == '#') spec.alternate = true;
      if (flag == '0') spec.zero = true;
    }
    if (at < format.size() && format[at] == '*') fail("a width of * is not supported");
    spec.width = read_number(format, at);
    if (at < format.size() && format[at] == '.') spec.precision = read_number(format, ++at);
    if (at >= format.size()) fail("the format ends after %");
    spec.type = format[at++];
    if (left) spec.align = '<', spec.zero = false;
    if (spec.type == '%') {
      out << "%";
      continue;
    }
    if (!given) value = next();
    if (std::string_view("sra").find(spec.type) != std::string_view::npos) {
      spec.zero = false;
      if (spec.align == 0) spec.align = '>';
      out << format_text(spec.type == 's' ? str(value, meter) : repr(value, meter), spec, meter);
    } else if (std::string_view("diuxXofFeEgG").find(spec.type) != std::string_view::npos) {
      if (!value.is_number()) fail(std::string("%") + spec.type + " needs a number");
      if (value.is(Kind::real) && (spec.type == 'd' || spec.type == 'i' || spec.type == 'u')) {
        if (!(std::fabs(value.real()) < 9.2e18)) fail("the number does not fit an integer");
        value = Value(static_cast<std::int64_t>(value.real()));
      }
      out << format_number(value, spec, meter);
    } else {
      fail(std::string("unsupported format %") + spec.type);
    }
  }
  if (!named && !arguments.is(Kind::dict) && used < (tuple ? arguments.items().size() : 1)) {
    fail("there are more values than the format takes");
  }
  return out.take();
}

namespace {

// Read a field of str.format: {name.attribute[key]!r:spec}.
Spec parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0, second = 0;
  if (!text.empty()) next_code_point(text, second);
  const auto is_align = [&](std::size_t i) { return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos; };
  if (second > 0 && is_align(second)) {
    spec.fill = std::string(text.substr(0, second));
    spec.align = text[second];
    at = second + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  const auto accept = [&](char c) { return at < text.size() && text[at] == c && (++at, true); };
  if (accept('+')) spec.sign = '+';
  else if (accept(' ')) spec.sign = ' ';
  else accept('-');
  spec.alternate = accept('#');
  spec.zero = accept('0');
  spec.width = read_number(text, at);
  spec.grouped = accept(',');
  if (accept('.')) spec.precision = read_number(text, at);
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("the format '" + std::string(text) + "' is not supported");
  return spec;
}

std::string format_field(const Value& value, char conversion, std::string_view spec_text, Meter& meter) {
  Value shown = value;
  if (conversion == 'r') shown = Value(repr(value, meter));
  if (conversion == 's') shown = Value(str(value, meter));
  if (spec_text.empty()) return str(shown, meter);
  Spec spec = parse_spec(spec_text);
  if (shown.is(Kind::string) && (spec.type == 0 || spec.type == 's')) {
    if (spec.zero && spec.align == 0) spec.align = '<', spec.fill = "0";
    spec.zero = false;
    return format_text(shown.text(), spec, meter);
  }
  if (!shown.is_number() || std::string_view("\0dxXobfFeEgG%", 13).find(spec.type) == std::string_view::npos) {
    fail("the format '" + std::string(spec_text) + "' does not fit '" + std::string(type_name(shown)) + "'");
  }
  return format_number(shown, spec, meter);
}

}  // namespace

// Format as str.format does.
std::string brace_format(const std::string& format, const Arguments& arguments, Meter& meter) {
  Writer out(meter);
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < format.size();) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      const std::size_t next = std::min(format.find_first_of("{}", at), format.size());
      out << std::string_view(format).substr(at, next - at);
      at = next;
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out << std::string_view(&c, 1);
      at += 2;
      continue;
    }
    const std::size_t close = format.find('}', at);
    if (c == '}' || close == format.npos) fail("a single brace in the format", "write {{ or }} for a brace");
    std::string_view field = std::string_view(format).substr(at + 1, close - at - 1);
    at = close + 1;
    const std::size_t colon = std::min(field.find(':'), field.size());
    const std::string_view spec = field.substr(std::min(colon + 1, field.size()));
    field = field.substr(0, colon);
    char conversion = 0;
    if (const std::size_t mark = field.find('!'); mark != field.npos) {
      if (mark + 2 != field.size()) fail("a conversion is !r or !s");
      conversion = field[mark + 1];
      if (conversion != 'r' && conversion != 's') fail("a conversion is !r or !s");
      field = field.substr(0, mark);
    }
    if (spec.find('{') != spec.npos) fail("nested fields are not supported");
    std::size_t end = std::min(field.find_first_of(".["), field.size());
    const std::string_view name = field.substr(0, end);
    Value value;
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
      std::size_t digits = 0;
      const std::size_t index = name.empty() ? automatic++ : static_cast<std::size_t>(read_number(name, digits));
      if (digits != name.size() || index >= arguments.positional.size()) fail("the format has no value for a field");
      value = arguments.positional[index];
    } else {
      const auto found = std::find_if(arguments.keyword.begin(), arguments.keyword.end(), [&](const auto& k) { return k.first == name; });
      if (found == arguments.keyword.end()) fail("the format has no value for '" + std::string(name) + "'");
      value = found->second;
    }
    while (end < field.size()) {
      const bool bracket = field[end] == '[';
      const std::size_t stop = bracket ? field.find(']', end) : std::min(field.find_first_of(".[", end + 1), field.size());
      if (stop == field.npos || stop == end + 1) fail("a field of the format is malformed");
      const std::string_view key = field.substr(end + 1, stop - end - 1);
      if (!bracket) {
        value = attribute(value, key);
      } else if (const auto index = parse_integer(key, 10); index && key[0] != '-') {
        value = item(value, Value(*index), meter);
      } else {
        value = item(value, Value(key), meter);
      }
      end = bracket ? stop + 1 : stop;
      if (end < field.size() && field[end] != '.' && field[end] != '[') fail("a field of the format is malformed");
    }
    out << format_field(value, conversion, spec, meter);
  }
  return out.take();
}

// Format the time of day, with the conversions that every system has.
std::string format_time(const std::string& format, std::int64_t seconds_since_epoch) {
  const std::time_t seconds = seconds_since_epoch;
  std::tm local{};
  if (localtime_r(&seconds, &local) == nullptr) fail("the clock shows a time out of range");
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    std::string one = "%";
    if (format[++at] == '-' && at + 1 < format.size()) one += format[at++];  // %-d: no padding
    one += format[at];
    if (std::string_view("aAbBcdHIjmMpSUwWxXyYZzDeFhklnRsTtuVGgCP%").find(one.back()) == std::string_view::npos) {
      fail("strftime_now does not know '" + one + "'");
    }
    std::array<char, 128> buffer{};
    out.append(buffer.data(), std::strftime(buffer.data(), buffer.size(), one.c_str(), &local));
  }
  return out;
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
    } else if (i == 0 || i + 1 == text.size() || !std::isalnum(static_cast<unsigned char>(text[i - 1])) ||
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
  if (end == last && error == std::errc::result_out_of_range) fail("the integer does not fit 64 bits");
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  const auto digits = plain_digits(text);
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  const std::string_view unsigned_part = rest.starts_with('-') ? rest.substr(1) : rest;
  if (unsigned_part.empty() || unsigned_part[0] == '-' || unsigned_part[0] == '+') return std::nullopt;
  if (unsigned_part.find_first_of("nN(") == 0 && lower(unsigned_part) != "nan") return std::nullopt;
  double value = 0;
  const char* last = rest.data() + rest.size();
  const auto [end, error] = std::from_chars(rest.data(), last, value);
  if (end != last) return std::nullopt;
  if (error == std::errc::result_out_of_range) return std::strtod(std::string(rest).c_str(), nullptr);
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
                                   std::chars_format::fixed, static_cast<int>(digits)).ptr;
    double rounded = 0;
    std::from_chars(buffer.data(), end, rounded);
    return Value(rounded);
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return Value(std::nearbyint(real / unit) * unit);
}

// Replace, knowing the size of the result before it is made.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        std::int64_t count, Meter& meter) {
  Writer out(meter);
  meter.work(text.size());
  std::size_t begin = 0;
  for (std::int64_t done = 0; count < 0 || done < count; ++done) {
    if (from.empty()) {  // between all characters, and around them
      out << to;
      if (begin >= text.size()) return out.take();
      std::size_t next = begin;
      next_code_point(text, next);
      out << text.substr(begin, next - begin);
      begin = next;
      continue;
    }
    const std::size_t at = find(text, from, begin);
    if (at == text.npos) break;
    out << text.substr(begin, at - begin) << to;
    begin = at + from.size();
  }
  out << text.substr(begin);
  return out.take();
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(text, at);
    const bool ends = (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace rose::text::jinja
