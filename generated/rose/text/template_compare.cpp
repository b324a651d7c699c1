// Compare, order and walk values.

#include <algorithm>
#include <cmath>

#include "rose/text/template_unicode.h"
#include "rose/text/template_value.h"

namespace rose::text::jinja {

// Hash so that equal keys meet: 1, 1.0 and true are one key.
std::size_t hash(const Value& value) {
  constexpr double kTooLarge = 9.2233720368547758e18;  // 2^63
  switch (value.kind()) {
    case Kind::none: return 0x9e3779b9;
    case Kind::boolean:
    case Kind::integer: return std::hash<std::int64_t>{}(value.integer());
    case Kind::real: {
      const double d = value.real();
      const bool whole = std::floor(d) == d && std::fabs(d) < kTooLarge;
      return whole ? std::hash<std::int64_t>{}(static_cast<std::int64_t>(d))
                   : std::hash<double>{}(d);
    }
    case Kind::string: return std::hash<std::string>{}(value.text());
    case Kind::undefined: return 0x85ebca6b;
    case Kind::tuple: {
      std::size_t h = 17;
      for (const Value& item : value.items()) h = h * 1'000'003 ^ hash(item);
      return h;
    }
    case Kind::list:
    case Kind::dict:
    case Kind::view: fail("unhashable type: '" + std::string(type_name(value)) + "'");
    default: return std::hash<const void*>{}(value.identity());
  }
}

namespace {

// Compare an integer with a float exactly, not after rounding it.
std::partial_ordering order_numbers(const Value& a, const Value& b) {
  constexpr double kTooLarge = 9.2233720368547758e18;  // 2^63
  if (a.is_integer() && b.is_integer()) return a.integer() <=> b.integer();
  if (!a.is_integer() && !b.is_integer()) return a.real() <=> b.real();
  if (!a.is_integer()) return 0 <=> order_numbers(b, a);
  const double d = b.real();
  if (std::isnan(d)) return std::partial_ordering::unordered;
  if (d >= kTooLarge) return std::partial_ordering::less;
  if (d < -kTooLarge) return std::partial_ordering::greater;
  const auto whole = static_cast<std::int64_t>(d);
  if (a.integer() != whole) return a.integer() <=> whole;
  return 0.0 <=> d - static_cast<double>(whole);
}

// Compare dictionaries whatever their order.
bool equal_dicts(const Dict& a, const Dict& b, Meter& meter) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other, meter);
  });
}

}  // namespace

// Compare for equality; different kinds differ, they do not fail.
bool equal(const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  if (a.identity() == b.identity()) return true;  // None and None; one list and itself
  switch (a.kind()) {
    case Kind::undefined: return true;
    case Kind::string:
      meter.work(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
      return a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                        [&](const Value& x, const Value& y) { return equal(x, y, meter); });
    case Kind::dict: return equal_dicts(a.as<Dict>(), b.as<Dict>(), meter);
    case Kind::range: {
      const Range &x = a.as<Range>(), &y = b.as<Range>();
      if (x.size != y.size) return false;
      return x.size == 0 || (x.start == y.start && (x.size == 1 || x.step == y.step));
    }
    case Kind::view:
      return a.as<View>().what == b.as<View>().what && a.as<View>().what != View::What::values &&
             equal(a.as<View>().dict, b.as<View>().dict, meter);
    default: return false;
  }
}

// Order numbers, texts and sequences; refuse the rest.
std::partial_ordering order(const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (a.is(Kind::undefined)) fail(a.text());
  if (b.is(Kind::undefined)) fail(b.text());
  if (a.is_number() && b.is_number()) return order_numbers(a, b);
  if (a.is(Kind::string) && b.is(Kind::string)) {
    meter.work(std::min(a.text().size(), b.text().size()));
    return a.text() <=> b.text();  // UTF-8 sorts as its code points do
  }
  if (a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple))) {
    const auto &x = a.items(), &y = b.items();
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i], meter)) return order(x[i], y[i], meter);
    }
    return x.size() <=> y.size();
  }
  fail("cannot order '" + std::string(type_name(a)) + "' and '" + std::string(type_name(b)) + "'");
}

// Step through a sequence, a text, a mapping or an iterator.
bool iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
    case Kind::space:
    case Kind::function:
    case Kind::macro: return false;
    default: return true;
  }
}

Cursor::Cursor(Value source, Meter& meter) : source_(std::move(source)), meter_(&meter) {
  if (!iterable(source_)) fail("'" + std::string(type_name(source_)) + "' object is not iterable");
  if (source_.is(Kind::loop)) fail("the loop variable itself cannot be walked");
}

std::optional<Value> Cursor::next() {
  meter_->step();
  switch (source_.kind()) {
    case Kind::list:
    case Kind::tuple:
      if (at_ >= source_.items().size()) return std::nullopt;
      return source_.items()[at_++];
    case Kind::string: {
      const std::string& text = source_.text();
      if (at_ >= text.size()) return std::nullopt;
      const std::size_t begin = at_;
      next_code_point(text, at_);
      return Value(text.substr(begin, at_ - begin));
    }
    case Kind::dict:
    case Kind::view: {
      const bool view = source_.is(Kind::view);
      const auto what = view ? source_.as<View>().what : View::What::keys;
      const Dict& dict = view ? source_.as<View>().dict.as<Dict>() : source_.as<Dict>();
      if (at_ >= dict.entries.size()) return std::nullopt;
      const auto& [key, value] = dict.entries[at_++];
      if (what == View::What::items) return Value::tuple({key, value});
      return what == View::What::keys ? key : value;
    }
    case Kind::range:
      if (static_cast<std::int64_t>(at_) >= source_.as<Range>().size) return std::nullopt;
      return source_.as<Range>().at(static_cast<std::int64_t>(at_++));
    case Kind::iterator: return source_.as<Iterator>().next();
    default: return std::nullopt;  // undefined: nothing to walk
  }
}

std::vector<Value> collect(const Value& value, Meter& meter) {
  std::vector<Value> items;
  Cursor cursor(value, meter);
  while (auto item = cursor.next()) items.push_back(std::move(*item));
  meter.work(items.size() * sizeof(Value));
  return items;
}

}  // namespace rose::text::jinja
