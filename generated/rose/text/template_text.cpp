// Print values as Python does.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "rose/text/template_natives.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

// Quote a text as Python would.
void write_quoted(Writer& out, std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  out << std::string_view(&quote, 1);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_code_point(text, at);
    char escaped[16];
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      std::snprintf(escaped, sizeof escaped, "\\%c", static_cast<char>(c));
    } else if (c == '\n' || c == '\r' || c == '\t') {
      std::snprintf(escaped, sizeof escaped, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (is_printable(c)) {
      out << text.substr(begin, at - begin);
      continue;
    } else {
      const char* form = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      std::snprintf(escaped, sizeof escaped, form, static_cast<unsigned>(c));
    }
    out << escaped;
  }
  out << std::string_view(&quote, 1);
}

void write_repr(Writer& out, const Value& value, Meter& meter, int depth);

// Write lists, tuples, dictionaries and views.
void write_items(Writer& out, const Value& value, Meter& meter, int depth, const char* open,
                 const char* close) {
  out << open;
  Cursor cursor(value, meter);
  for (bool first = true; const auto item = cursor.next(); first = false) {
    if (!first) out << ", ";
    write_repr(out, *item, meter, depth + 1);
  }
  if (value.is(Kind::tuple) && value.items().size() == 1) out << ",";
  out << close;
}

void write_dict(Writer& out, const Dict& dict, Meter& meter, int depth) {
  out << "{";
  for (bool first = true; const auto& [key, value] : dict.entries) {
    if (!first) out << ", ";
    first = false;
    write_repr(out, key, meter, depth + 1);
    out << ": ";
    write_repr(out, value, meter, depth + 1);
  }
  out << "}";
}

// Write any value as Python's repr does.
void write_repr(Writer& out, const Value& value, Meter& meter, int depth) {
  meter.step();
  if (depth > 3 * kDataNesting) fail("a namespace that contains itself cannot be printed");
  switch (value.kind()) {
    case Kind::undefined: out << "Undefined"; return;
    case Kind::none: out << "None"; return;
    case Kind::boolean: out << (value.integer() != 0 ? "True" : "False"); return;
    case Kind::integer: out << std::to_string(value.integer()); return;
    case Kind::real: out << real_repr(value.real()); return;
    case Kind::string: write_quoted(out, value.text()); return;
    case Kind::list: write_items(out, value, meter, depth, "[", "]"); return;
    case Kind::tuple: write_items(out, value, meter, depth, "(", ")"); return;
    case Kind::dict: write_dict(out, value.as<Dict>(), meter, depth); return;
    case Kind::view: {
      const auto what = value.as<View>().what;
      const char* open = what == View::What::keys     ? "dict_keys(["
                         : what == View::What::values ? "dict_values(["
                                                      : "dict_items([";
      write_items(out, value, meter, depth, open, "])");
      return;
    }
    case Kind::range: {
      const Range& range = value.as<Range>();
      out << "range(" << std::to_string(range.start) << ", "
          << std::to_string(range.start + range.size * range.step);
      if (range.step != 1) out << ", " << std::to_string(range.step);
      out << ")";
      return;
    }
    case Kind::space:
      out << "<Namespace ";
      write_dict(out, value.as<Space>().attributes, meter, depth + 1);
      out << ">";
      return;
    case Kind::iterator: out << "<generator object>"; return;
    case Kind::function:
    case Kind::macro:
    case Kind::loop: out << value.as<Object>().shown(); return;
  }
}

}  // namespace

// Write the shortest decimal that reads back as the same float.
std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, std::end(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t mark = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, end, exponent);
  std::string sign(text[0] == '-' ? "-" : ""), digits;
  for (const char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (n > 1) digits.insert(1, ".");
    const std::string power = std::to_string(std::abs(exponent));
    return sign + digits + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1)
    return sign + digits + std::string(static_cast<std::size_t>(exponent + 1 - n), '0') + ".0";
  return sign + digits.insert(static_cast<std::size_t>(exponent) + 1, ".");
}

std::string repr(const Value& value, Meter& meter) {
  Writer out(meter);
  write_repr(out, value, meter, 0);
  return out.take();
}

std::string str(const Value& value, Meter& meter) {
  if (value.is(Kind::string)) return value.text();
  if (value.is(Kind::undefined)) return "";
  return repr(value, meter);
}

}  // namespace rose::text::jinja
