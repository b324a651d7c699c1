// Filters of single values.

#include <algorithm>
#include <cmath>
#include <span>

#include "rose/text/template_filters.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

std::string shown(Host& in, const Value& value) {
  return str(value, in.meter());
}

// Convert to numbers, with a default where that fails.
Value to_integer(Host&, const Value& self, const Bound& a) {
  Value fallback = a.get(0, Value(0));
  if (self.is(Kind::undefined)) fail(self.text());
  if (self.is_integer()) return Value(self.integer());
  double real = 0;
  if (self.is(Kind::real)) {
    real = self.real();
    if (std::isinf(real)) fail("an infinite number has no integer");
  } else if (self.is(Kind::string)) {
    const int base =
        a.has(1) ? static_cast<int>(std::clamp<std::int64_t>(to_index(a[1], "base"), -1, 99)) : 10;
    if (const auto integer = parse_integer(self.text(), base)) return Value(*integer);
    const auto parsed = parse_real(self.text());
    if (!parsed || std::isinf(*parsed)) return fallback;
    real = *parsed;
  } else {
    return fallback;
  }
  if (std::isnan(real)) return fallback;
  if (std::fabs(real) >= 9.2233720368547758e18) fail("the integer does not fit 64 bits");
  return Value(static_cast<std::int64_t>(real));
}

Value to_real(Host&, const Value& self, const Bound& a) {
  if (self.is(Kind::undefined)) fail(self.text());
  if (self.is_number()) return Value(self.real());
  if (self.is(Kind::string)) {
    if (const auto parsed = parse_real(self.text())) return Value(*parsed);
  }
  return a.get(0, Value(0.0));
}

Value absolute(Host&, const Value& self, const Bound&) {
  if (!self.is_number()) fail("abs needs a number, not '" + std::string(type_name(self)) + "'");
  if (self.is(Kind::real)) return Value(std::fabs(self.real()));
  return self.integer() < 0 ? negate(self, true) : Value(self.integer());
}

Value rounded(Host& in, const Value& self, const Bound& a) {
  const std::int64_t digits = a.has(0) ? to_index(a[0], "the precision") : 0;
  const std::string method = a.has(1) ? shown(in, a[1]) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("the method of round is common, ceil or floor");
  }
  if (!self.is_number()) fail("round needs a number, not '" + std::string(type_name(self)) + "'");
  if (method == "common") return round_number(self, digits);
  const Value unit = arithmetic("**", Value(10), Value(digits), in.meter());
  const double scaled = arithmetic("*", self, unit, in.meter()).real();
  if (!std::isfinite(scaled)) fail("the number cannot be rounded");
  return Value((method == "ceil" ? std::ceil(scaled) + 0.0 : std::floor(scaled)) / unit.real());
}

// Shape texts.
Value title(Host& in, const Value& self, const Bound&) {
  const std::string text = shown(in, self);
  std::string out;
  bool start = true;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    start ? append_upper(out, c) : append_lower(out, c);
    start = is_space(c) || (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) !=
                                            std::string_view::npos);
  }
  return Value(std::move(out));
}

Value escape(Host& in, const Value& self, const Bound&) {
  Writer out(in.meter());
  for (const char c : shown(in, self)) {
    switch (c) {
      case '&': out << "&amp;"; break;
      case '<': out << "&lt;"; break;
      case '>': out << "&gt;"; break;
      case '\'': out << "&#39;"; break;
      case '"': out << "&#34;"; break;
      default: out << std::string_view(&c, 1);
    }
  }
  return Value(out.take());
}

// Indent, shorten and join.
Value indent(Host& in, const Value& self, const Bound& a) {
  if (self.is(Kind::undefined)) fail(self.text());
  const std::string text = to_text(self, "what to indent") + "\n";
  std::string by(4, ' ');
  if (a.has(0) && a[0].is(Kind::string)) {
    by = a[0].text();
  } else if (a.has(0)) {
    const std::int64_t width = std::max<std::int64_t>(to_index(a[0], "the width"), 0);
    in.meter().will_make(static_cast<std::uint64_t>(width));
    by.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool first = a.has(1) && truth(a[1]), blank = a.has(2) && truth(a[2]);
  Writer out(in.meter());
  for (bool at_start = true; const std::string_view line : split_lines(text)) {
    if (!at_start) out << "\n";
    if (at_start ? first : blank || !line.empty()) out << by;
    at_start = false;
    out << line;
  }
  return Value(out.take());
}

Value truncate(Host&, const Value& self, const Bound& a) {
  const std::int64_t length_limit = a.has(0) ? to_index(a[0], "the length") : 255;
  const std::string end = a.has(2) ? to_text(a[2], "the end") : "...";
  const std::int64_t leeway = a.has(3) && !a[3].is(Kind::none) ? to_index(a[3], "the leeway") : 5;
  const auto end_size = static_cast<std::int64_t>(count_code_points(end));
  if (length_limit < end_size || leeway < 0) fail("truncate got a length that is too short");
  const auto size = length(self);
  if (size && *size - leeway <= length_limit) return self;
  const std::string& text = to_text(self, "what to truncate");
  std::string cut =
      text.substr(0, byte_offset(text, static_cast<std::size_t>(length_limit - end_size)));
  if (!a.has(1) || !truth(a[1])) cut.resize(std::min(cut.rfind(' '), cut.size()));
  return Value(cut + end);
}

Value join(Host& in, const Value& self, const Bound& a) {
  const std::string separator = a.has(0) ? shown(in, a[0]) : "";
  const bool by_attribute = a.has(1) && !a[1].is(Kind::none);
  const AttributePath path = by_attribute ? AttributePath(a[1]) : AttributePath();
  Writer out(in.meter());
  Cursor cursor(self, in.meter());
  for (bool first = true; auto part = cursor.next(); first = false) {
    if (!first) out << separator;
    out << shown(in, by_attribute ? path.of(*part, in.meter()) : *part);
  }
  return Value(out.take());
}

// Serialise as Hugging Face's tojson does: json.dumps, not Jinja's own.
Value tojson(Host& in, const Value& self, const Bound& a) {
  std::optional<std::string> indent;
  if (a.has(1) && !a[1].is(Kind::none)) {
    if (a[1].is(Kind::string)) {
      indent = a[1].text();
    } else {
      const std::int64_t width = std::max<std::int64_t>(to_index(a[1], "indent"), 0);
      in.meter().will_make(static_cast<std::uint64_t>(width));
      indent = std::string(static_cast<std::size_t>(width), ' ');
    }
  }
  std::string comma = indent ? "," : ", ", colon = ": ";
  if (a.has(2) && !a[2].is(Kind::none)) {
    const std::vector<Value> separators = collect(a[2], in.meter());
    if (separators.size() != 2) fail("separators are two texts");
    comma = to_text(separators[0], "a separator");
    colon = to_text(separators[1], "a separator");
  }
  return Value(to_json(self, a.has(0) && truth(a[0]), indent, comma, colon, a.has(3) && truth(a[3]),
                       in.meter()));
}

Value or_default(Host&, const Value& self, const Bound& a) {
  const bool use = self.is(Kind::undefined) || (a.has(1) && truth(a[1]) && !truth(self));
  return use ? a.get(0, Value("")) : self;
}

Value changed_case(Host& in, const Value& self, std::string (*change)(std::string_view)) {
  return Value(change(shown(in, self)));
}

Value call_method(Host& in, const Value& self, const char* name, const Bound& a) {
  Arguments arguments;
  for (const auto& value : a.values) {
    if (value) arguments.positional.push_back(*value);
  }
  const Value text(shown(in, self));
  return call_native(in, *find_method(text, name), text, arguments);
}

// List the filters of single values.
constexpr Native kFilters[] = {
    {"abs", "", absolute},
    {"capitalize", "",
     [](auto& in, auto& s, auto& a) { return call_method(in, s, "capitalize", a); }},
    {"center", "width=",
     [](auto& in, auto& s, auto& a) {
       Arguments arguments{{a.get(0, Value(80))}, {}};
       const Value text(shown(in, s));
       return call_native(in, *find_method(text, "center"), text, arguments);
     }},
    {"d", "default_value=,boolean=", or_default},
    {"default", "default_value=,boolean=", or_default},
    {"e", "", escape},
    {"escape", "", escape},
    {"forceescape", "", escape},
    {"float", "default=", to_real},
    {"format", "*",
     [](auto& in, auto& s, auto& a) {
       if (!a.all->keyword.empty() && !a.all->positional.empty())
         fail("format takes values by position or by name, not both");
       Dict named;
       for (const auto& [key, value] : a.all->keyword) named.set(Value(key), value);
       const Value values =
           a.all->keyword.empty() ? Value::tuple(a.all->positional) : Value::dict(std::move(named));
       return Value(percent_format(shown(in, s), values, in.meter()));
     }},
    {"indent", "width=,first=,blank=", indent},
    {"int", "default=,base=", to_integer},
    {"join", "d=,attribute=", join},
    {"lower", "", [](auto& in, auto& s, auto&) { return changed_case(in, s, lower); }},
    {"replace", "old,new,count=",
     [](auto& in, auto& s, auto& a) {
       const std::int64_t count = a.has(2) && !a[2].is(Kind::none) ? to_index(a[2], "count") : -1;
       return Value(replace_all(shown(in, s), shown(in, a[0]), shown(in, a[1]), count, in.meter()));
     }},
    {"round", "precision=,method=", rounded},
    {"safe", "", [](auto& in, auto& s, auto&) { return Value(shown(in, s)); }},
    {"string", "", [](auto& in, auto& s, auto&) { return Value(shown(in, s)); }},
    {"title", "", title},
    {"tojson", "ensure_ascii=,indent=,separators=,sort_keys=", tojson},
    {"trim", "chars=", [](auto& in, auto& s, auto& a) { return call_method(in, s, "strip", a); }},
    {"truncate", "length=,killwords=,end=,leeway=", truncate},
    {"upper", "", [](auto& in, auto& s, auto&) { return changed_case(in, s, upper); }},
};

}  // namespace

const Native* find_filter(std::string_view name) {
  const Native* native = find_native(kFilters, name);
  return native != nullptr ? native : find_sequence_filter(name);
}

}  // namespace rose::text::jinja
