// str.format and strftime.

#include <algorithm>
#include <array>
#include <ctime>

#include "rose/text/template_format.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {

namespace {

// Read the specification of a field.
Spec parse_spec(std::string_view text) {
  Spec spec;
  std::size_t at = 0, second = 0;
  if (!text.empty()) next_code_point(text, second);
  const auto is_align = [&](std::size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  if (second > 0 && is_align(second)) {
    spec.fill = std::string(text.substr(0, second));
    spec.align = text[second];
    at = second + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  const auto accept = [&](char c) { return at < text.size() && text[at] == c && (++at, true); };
  if (accept('+'))
    spec.sign = '+';
  else if (accept(' '))
    spec.sign = ' ';
  else
    accept('-');
  spec.alternate = accept('#');
  spec.zero = accept('0');
  spec.width = read_number(text, at);
  spec.grouped = accept(',');
  if (accept('.')) spec.precision = read_number(text, at);
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("the format '" + std::string(text) + "' is not supported");
  return spec;
}

std::string format_field(const Value& value, char conversion, std::string_view spec_text,
                         Meter& meter) {
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
  if (!shown.is_number() ||
      std::string_view("\0dxXobfFeEgG%", 13).find(spec.type) == std::string_view::npos) {
    fail("the format '" + std::string(spec_text) + "' does not fit '" +
         std::string(type_name(shown)) + "'");
  }
  return format_number(shown, spec, meter);
}

// Find the value of a field, and follow its path.
const Value& field_argument(std::string_view name, const Arguments& arguments,
                            std::size_t& automatic) {
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
    std::size_t digits = 0;
    const std::size_t index =
        name.empty() ? automatic++ : static_cast<std::size_t>(read_number(name, digits));
    if (digits != name.size() || index >= arguments.positional.size())
      fail("the format has no value for a field");
    return arguments.positional[index];
  }
  const auto found = std::find_if(arguments.keyword.begin(), arguments.keyword.end(),
                                  [&](const auto& k) { return k.first == name; });
  if (found == arguments.keyword.end())
    fail("the format has no value for '" + std::string(name) + "'");
  return found->second;
}

Value follow(Value value, std::string_view path, Meter& meter) {
  std::size_t end = 0;
  while (end < path.size()) {
    const bool bracket = path[end] == '[';
    const std::size_t stop =
        bracket ? path.find(']', end) : std::min(path.find_first_of(".[", end + 1), path.size());
    if (stop == path.npos || stop == end + 1) fail("a field of the format is malformed");
    const std::string_view key = path.substr(end + 1, stop - end - 1);
    if (!bracket) {
      value = attribute(value, key);
    } else if (const auto index = parse_integer(key, 10); index && key[0] != '-') {
      value = item(value, Value(*index), meter);
    } else {
      value = item(value, Value(key), meter);
    }
    end = bracket ? stop + 1 : stop;
    if (end < path.size() && path[end] != '.' && path[end] != '[')
      fail("a field of the format is malformed");
  }
  return value;
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
    if (c == '}' || close == format.npos)
      fail("a single brace in the format", "write {{ or }} for a brace");
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
    Value value = field_argument(name, arguments, automatic);
    value = follow(std::move(value), field.substr(end), meter);
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
    if (std::string_view("aAbBcdHIjmMpSUwWxXyYZzDeFhklnRsTtuVGgCP%").find(one.back()) ==
        std::string_view::npos) {
      fail("strftime_now does not know '" + one + "'");
    }
    std::array<char, 128> buffer{};
    out.append(buffer.data(), std::strftime(buffer.data(), buffer.size(), one.c_str(), &local));
  }
  return out;
}

}  // namespace rose::text::jinja
