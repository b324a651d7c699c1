// The methods that templates call.

#include <algorithm>
#include <span>

#include "rose/text/template_natives.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

// Strip spaces, or any of the characters given.
Value stripped(const Value& self, const Bound& a, bool left, bool right) {
  const std::string& text = self.text();
  if (!a.has(0) || a[0].is(Kind::none)) return Value(strip(text, left, right));
  const std::string& set = to_text(a[0], "what to strip");
  const auto in_set = [&](std::string_view letter) { return set.find(letter) != set.npos; };
  std::size_t begin = 0, end = text.size();
  while (left && begin < end) {
    std::size_t next = begin;
    next_code_point(text, next);
    if (!in_set(std::string_view(text).substr(begin, next - begin))) break;
    begin = next;
  }
  while (right && begin < end) {
    std::size_t last = end - 1;
    while (last > begin && (text[last] & 0xC0) == 0x80) --last;
    if (!in_set(std::string_view(text).substr(last, end - last))) break;
    end = last;
  }
  return Value(text.substr(begin, end - begin));
}

// Search from the right by searching backwards.
std::string backwards(std::string_view text) {
  return std::string(text.rbegin(), text.rend());
}

std::size_t find_last(std::string_view text, std::string_view needle) {
  const std::size_t at = find(backwards(text), backwards(needle));
  return at == text.npos ? at : text.size() - at - needle.size();
}

// Split at a separator, or at runs of space.
std::vector<Value> split_spaces(std::string_view text, std::int64_t limit) {
  std::vector<Value> parts;
  text = strip(text, true, false);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
      parts.emplace_back(strip(text, false, true));
      break;
    }
    std::size_t end = 0, next = 0;
    while (end < text.size() && !is_space(next_code_point(text, next))) end = next;
    parts.emplace_back(text.substr(0, end));
    text = strip(text.substr(end), true, false);
  }
  return parts;
}

std::vector<Value> split_spaces_from_right(std::string_view text, std::int64_t limit) {
  std::vector<Value> parts;
  text = strip(text, false, true);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
      parts.emplace_back(strip(text, true, false));
      break;
    }
    std::size_t word = text.size();
    while (word > 0) {
      std::size_t begin = word - 1;
      while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
      std::size_t next = begin;
      if (is_space(next_code_point(text, next))) break;
      word = begin;
    }
    parts.emplace_back(text.substr(word));
    text = strip(text.substr(0, word), false, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// Split at a separator, from either side.
std::vector<Value> split_at(std::string_view text, std::string_view separator, std::int64_t limit,
                            Meter& meter) {
  std::vector<Value> parts;
  std::size_t begin = 0, at = 0;
  while ((limit < 0 || static_cast<std::int64_t>(parts.size()) < limit) &&
         (at = find(text, separator, begin)) != text.npos) {
    parts.emplace_back(text.substr(begin, at - begin));
    begin = at + separator.size();
    meter.step();
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

Value split(Host& in, const Value& self, const Bound& a, bool from_right) {
  const std::string& text = self.text();
  in.meter().work(text.size());
  const std::int64_t limit = a.has(1) ? to_index(a[1], "maxsplit") : -1;
  if (!a.has(0) || a[0].is(Kind::none)) {
    return Value::list(from_right ? split_spaces_from_right(text, limit)
                                  : split_spaces(text, limit));
  }
  const std::string& separator = to_text(a[0], "the separator");
  if (separator.empty()) fail("the separator of split is empty");
  if (!from_right) return Value::list(split_at(text, separator, limit, in.meter()));
  std::vector<Value> parts = split_at(backwards(text), backwards(separator), limit, in.meter());
  std::reverse(parts.begin(), parts.end());
  for (Value& part : parts) part = Value(backwards(part.text()));
  return Value::list(std::move(parts));
}

// Compare the start or the end with one text or with several.
std::string_view window(const Value& self, const Bound& a, std::size_t from, bool& inside) {
  const std::int64_t n = *length(self);
  const auto clamp = [&](std::size_t i, std::int64_t fallback) {
    if (a.values.size() <= i || !a.has(i) || a[i].is(Kind::none)) return fallback;
    const std::int64_t given = to_index(a[i], "a position");
    return std::max<std::int64_t>(given < 0 ? given + n : given, 0);
  };
  const std::int64_t start = clamp(from, 0), stop = std::min(clamp(from + 1, n), n);
  inside = start <= n && start <= stop;
  if (!inside) return {};
  const std::size_t begin = byte_offset(self.text(), static_cast<std::size_t>(start));
  const std::size_t end = byte_offset(self.text(), static_cast<std::size_t>(stop));
  return std::string_view(self.text()).substr(begin, end - begin);
}

Value has_affix(const Value& self, const Bound& a, bool at_end) {
  bool inside = false;
  const std::string_view text = window(self, a, 1, inside);
  const auto matches = [&](const Value& affix) {
    const std::string& part = to_text(affix, at_end ? "the suffix" : "the prefix");
    return inside && (at_end ? text.ends_with(part) : text.starts_with(part));
  };
  if (!a[0].is(Kind::tuple)) return Value(matches(a[0]));
  return Value(std::any_of(a[0].items().begin(), a[0].items().end(), matches));
}

// Find a text; positions count code points.
Value find_in(Host& in, const Value& self, const Bound& a, bool last, bool must) {
  bool inside = false;
  in.meter().work(2 * self.text().size());
  const std::string_view text = window(self, a, 1, inside);
  const std::string& part = to_text(a[0], "what to find");
  const std::size_t at = !inside ? text.npos : last ? find_last(text, part) : find(text, part);
  if (at == text.npos) {
    if (must) fail("the text to look for is not there");
    return Value(-1);
  }
  const std::size_t before = static_cast<std::size_t>(text.data() - self.text().data());
  return Value(static_cast<std::int64_t>(
      count_code_points(std::string_view(self.text()).substr(0, before + at))));
}

Value count_in(Host& in, const Value& self, const Bound& a) {
  bool inside = false;
  in.meter().work(2 * self.text().size());
  const std::string_view text = window(self, a, 1, inside);
  const std::string& part = to_text(a[0], "what to count");
  if (!inside) return Value(0);
  if (part.empty()) return Value(static_cast<std::int64_t>(count_code_points(text)) + 1);
  std::int64_t n = 0;
  for (std::size_t at = 0; (at = find(text, part, at)) != text.npos; at += part.size()) ++n;
  return Value(n);
}

// Change case word by word.
Value capitalized(std::string_view text) {
  std::string out;
  if (text.empty()) return Value(out);
  std::size_t at = 0;
  append_title(out, next_code_point(text, at));
  return Value(out + lower(text.substr(at)));
}

Value titled(std::string_view text) {
  std::string out;
  bool inside_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    inside_word ? append_lower(out, c) : append_title(out, c);
    inside_word = is_cased(c);
  }
  return Value(std::move(out));
}

Value all_letters(std::string_view text, bool (*good)(char32_t), bool (*bad)(char32_t)) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (bad(c)) return Value(false);
    any = any || good(c);
  }
  return Value(any);
}

bool ascii_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

// Pad to a width.
Value padded(Host& in, const Value& self, std::int64_t width, std::string_view fill,
             int left_share) {
  const std::int64_t missing = width - *length(self);
  if (missing <= 0) return self;
  in.meter().will_make(self.text().size() + static_cast<std::uint64_t>(missing) * fill.size());
  std::int64_t left = left_share == 2 ? missing : left_share == 0 ? 0 : missing / 2;
  if (left_share == 1) left += missing & width & 1;  // where CPython puts the odd one
  std::string out;
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return Value(std::move(out));
}

Value pad_method(Host& in, const Value& self, const Bound& a, int left_share) {
  const std::string fill = a.has(1) ? to_text(a[1], "the fill character") : " ";
  if (count_code_points(fill) != 1) fail("the fill character must be one character");
  return padded(in, self, to_index(a[0], "the width"), fill, left_share);
}

Value zero_filled(Host& in, const Value& self, const Bound& a) {
  const std::string& text = self.text();
  const bool sign = text.starts_with('-') || text.starts_with('+');
  const std::int64_t width = to_index(a[0], "the width");
  if (!sign) return padded(in, self, width, "0", 2);
  const Value digits = padded(in, Value(text.substr(1)), width < 1 ? 0 : width - 1, "0", 2);
  return Value(text.substr(0, 1) + digits.text());
}

Value partitioned(const Value& self, const Bound& a, bool last) {
  const std::string &text = self.text(), &by = to_text(a[0], "the separator");
  if (by.empty()) fail("the separator is empty");
  const std::size_t at = last ? find_last(text, by) : find(text, by);
  if (at == text.npos) {
    return last ? Value::tuple({Value(""), Value(""), self})
                : Value::tuple({self, Value(""), Value("")});
  }
  return Value::tuple({Value(text.substr(0, at)), Value(by), Value(text.substr(at + by.size()))});
}

// Join texts, and nothing else, as str.join does.
Value joined(Host& in, const Value& self, const Bound& a) {
  Writer out(in.meter());
  Cursor cursor(a[0], in.meter());
  for (bool first = true; const auto part = cursor.next(); first = false) {
    if (!first) out << self.text();
    out << to_text(*part, "what join gets");
  }
  return Value(out.take());
}

// List the methods of texts.
constexpr Native kStringMethods[] = {
    {"strip", "/chars=", [](auto&, auto& s, auto& a) { return stripped(s, a, true, true); }},
    {"lstrip", "/chars=", [](auto&, auto& s, auto& a) { return stripped(s, a, true, false); }},
    {"rstrip", "/chars=", [](auto&, auto& s, auto& a) { return stripped(s, a, false, true); }},
    {"split", "sep=,maxsplit=", [](auto& in, auto& s, auto& a) { return split(in, s, a, false); }},
    {"rsplit", "sep=,maxsplit=", [](auto& in, auto& s, auto& a) { return split(in, s, a, true); }},
    {"splitlines", "keepends=",
     [](auto&, auto& s, auto& a) {
       std::vector<Value> lines;
       const bool keep = a.has(0) && to_index(a[0], "keepends") != 0;
       for (const std::string_view line : split_lines(s.text(), keep)) lines.emplace_back(line);
       return Value::list(std::move(lines));
     }},
    {"startswith", "/p,a=,b=", [](auto&, auto& s, auto& a) { return has_affix(s, a, false); }},
    {"endswith", "/p,a=,b=", [](auto&, auto& s, auto& a) { return has_affix(s, a, true); }},
    {"replace", "/old,new,count=",
     [](auto& in, auto& s, auto& a) {
       const std::int64_t count = a.has(2) ? to_index(a[2], "count") : -1;
       return Value(replace_all(s.text(), to_text(a[0], "what to replace"),
                                to_text(a[1], "the replacement"), count, in.meter()));
     }},
    {"upper", "", [](auto&, auto& s, auto&) { return Value(upper(s.text())); }},
    {"lower", "", [](auto&, auto& s, auto&) { return Value(lower(s.text())); }},
    {"casefold", "", [](auto&, auto& s, auto&) { return Value(lower(s.text())); }},
    {"title", "", [](auto&, auto& s, auto&) { return titled(s.text()); }},
    {"capitalize", "", [](auto&, auto& s, auto&) { return capitalized(s.text()); }},
    {"join", "/parts", [](auto& in, auto& s, auto& a) { return joined(in, s, a); }},
    {"find",
     "/x,a=,b=", [](auto& in, auto& s, auto& a) { return find_in(in, s, a, false, false); }},
    {"rfind",
     "/x,a=,b=", [](auto& in, auto& s, auto& a) { return find_in(in, s, a, true, false); }},
    {"index",
     "/x,a=,b=", [](auto& in, auto& s, auto& a) { return find_in(in, s, a, false, true); }},
    {"rindex",
     "/x,a=,b=", [](auto& in, auto& s, auto& a) { return find_in(in, s, a, true, true); }},
    {"count", "/x,a=,b=", [](auto& in, auto& s, auto& a) { return count_in(in, s, a); }},
    {"format", "*",
     [](auto& in, auto& s, auto& a) { return Value(brace_format(s.text(), *a.all, in.meter())); }},
    {"isupper", "",
     [](auto&, auto& s, auto&) { return all_letters(s.text(), is_upper, is_lower); }},
    {"islower", "",
     [](auto&, auto& s, auto&) { return all_letters(s.text(), is_lower, is_upper); }},
    {"isdigit", "",
     [](auto&, auto& s, auto&) {
       return all_letters(s.text(), ascii_digit, [](char32_t c) { return !ascii_digit(c); });
     }},
    {"isspace", "",
     [](auto&, auto& s, auto&) {
       return all_letters(s.text(), is_space, [](char32_t c) { return !is_space(c); });
     }},
    {"center", "/w,fill=", [](auto& in, auto& s, auto& a) { return pad_method(in, s, a, 1); }},
    {"ljust", "/w,fill=", [](auto& in, auto& s, auto& a) { return pad_method(in, s, a, 0); }},
    {"rjust", "/w,fill=", [](auto& in, auto& s, auto& a) { return pad_method(in, s, a, 2); }},
    {"zfill", "/width", [](auto& in, auto& s, auto& a) { return zero_filled(in, s, a); }},
    {"partition", "/sep", [](auto&, auto& s, auto& a) { return partitioned(s, a, false); }},
    {"rpartition", "/sep", [](auto&, auto& s, auto& a) { return partitioned(s, a, true); }},
    {"removeprefix", "/p",
     [](auto&, auto& s, auto& a) {
       const std::string& p = to_text(a[0], "the prefix");
       return s.text().starts_with(p) ? Value(s.text().substr(p.size())) : s;
     }},
    {"removesuffix", "/p",
     [](auto&, auto& s, auto& a) {
       const std::string& p = to_text(a[0], "the suffix");
       return s.text().ends_with(p) ? Value(s.text().substr(0, s.text().size() - p.size())) : s;
     }},
};

// List the methods of dictionaries and lists.
Value view(const Value& dict, View::What what) {
  auto object = std::make_shared<View>();
  object->what = what;
  object->dict = dict;
  object->depth = dict.depth();
  return Value::object(Kind::view, std::move(object));
}

constexpr Native kDictMethods[] = {
    {"items", "", [](auto&, auto& s, auto&) { return view(s, View::What::items); }},
    {"keys", "", [](auto&, auto& s, auto&) { return view(s, View::What::keys); }},
    {"values", "", [](auto&, auto& s, auto&) { return view(s, View::What::values); }},
    {"get", "/key,default=",
     [](auto&, auto& s, auto& a) {
       const Value* found = s.template as<Dict>().find(a[0]);
       return found ? *found : a.get(1, Value());
     }},
    {"copy", "", [](auto&, auto& s, auto&) { return s; }},
};

constexpr Native kSequenceMethods[] = {
    {"index", "/value",
     [](auto& in, auto& s, auto& a) {
       for (std::size_t i = 0; i < s.items().size(); ++i) {
         if (equal(s.items()[i], a[0], in.meter())) return Value(static_cast<std::int64_t>(i));
       }
       fail("the value to look for is not in the list");
     }},
    {"count", "/value",
     [](auto& in, auto& s, auto& a) {
       return Value(static_cast<std::int64_t>(
           std::count_if(s.items().begin(), s.items().end(),
                         [&](const Value& item) { return equal(item, a[0], in.meter()); })));
     }},
};

constexpr Native kListCopy = {"copy", "", [](auto&, auto& s, auto&) { return s; }};

}  // namespace

const Native* find_method(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::string: return find_native(kStringMethods, name);
    case Kind::dict: return find_native(kDictMethods, name);
    case Kind::tuple: return find_native(kSequenceMethods, name);
    case Kind::list: return name == "copy" ? &kListCopy : find_native(kSequenceMethods, name);
    default: return nullptr;
  }
}

}  // namespace rose::text::jinja
