// Reach into values.

#include <algorithm>
#include <array>

#include "rose/text/template_natives.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

// Find a method, unless it would change what it is called on.
std::optional<Value> method(const Value& of, std::string_view name) {
  static constexpr std::string_view kMutators[] = {"append", "clear",      "pop",    "reverse",
                                                   "insert", "sort",       "extend", "remove",
                                                   "update", "setdefault", "popitem"};
  const Native* native = find_method(of, name);
  if (native == nullptr) {
    const bool list_only = name == "append" || name == "reverse" || name == "insert" ||
                           name == "sort" || name == "extend" || name == "remove";
    const bool dict_only = name == "update" || name == "setdefault" || name == "popitem";
    const bool mutable_kind =
        (of.is(Kind::list) && !dict_only) || (of.is(Kind::dict) && !list_only);
    if (mutable_kind && std::count(std::begin(kMutators), std::end(kMutators), name)) {
      return Value::undefined("a template may not change a list or dictionary in place ('" +
                              std::string(name) + "'): make a new one, or use a namespace");
    }
    return std::nullopt;
  }
  return bound_method(*native, of);
}

std::string described(const Value& of, std::string_view name) {
  const std::string type = of.is(Kind::none) ? "None" : std::string(type_name(of)) + " object";
  return "'" + type + "' has no attribute '" + std::string(name) + "'";
}

/// The part that Python's getattr would find.
std::optional<Value> own_attribute(const Value& of, std::string_view name) {
  if (name.starts_with('_')) return std::nullopt;
  if (of.is(Kind::space)) {
    const Value* found = of.as<Space>().attributes.member(name);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (auto bound = method(of, name)) return bound;
  if (of.is(Kind::loop) || of.is(Kind::macro)) return of.as<Object>().attribute(name);
  return std::nullopt;
}

std::optional<std::size_t> position(std::int64_t index, std::int64_t n) {
  if (index < 0) index += n;
  if (index < 0 || index >= n) return std::nullopt;
  return static_cast<std::size_t>(index);
}

// Take the item at an index or under a key.
bool hashable(const Value& key) {
  if (key.is(Kind::tuple)) return std::all_of(key.items().begin(), key.items().end(), hashable);
  return !key.is(Kind::list) && !key.is(Kind::dict) && !key.is(Kind::view);
}

std::optional<Value> element(const Value& of, const Value& key, Meter& meter) {
  if (of.is(Kind::dict)) {
    if (!hashable(key)) return std::nullopt;
    const Value* found = of.as<Dict>().find(key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  if (!key.is_integer()) return std::nullopt;
  switch (of.kind()) {
    case Kind::list:
    case Kind::tuple: {
      const auto at = position(key.integer(), static_cast<std::int64_t>(of.items().size()));
      return at ? std::optional<Value>(of.items()[*at]) : std::nullopt;
    }
    case Kind::range: {
      const auto at = position(key.integer(), of.as<Range>().size);
      if (!at) return std::nullopt;
      return of.as<Range>().at(static_cast<std::int64_t>(*at));
    }
    case Kind::string: {
      const std::string& text = of.text();
      meter.work(text.size());
      const auto at = position(key.integer(), *length(of));
      if (!at) return std::nullopt;
      const std::size_t begin = byte_offset(text, *at);
      std::size_t end = begin;
      next_code_point(text, end);
      return Value(text.substr(begin, end - begin));
    }
    default: return std::nullopt;
  }
}

}  // namespace

// Read an attribute: methods first, then keys, as Jinja does.
Value attribute(const Value& of, std::string_view name) {
  if (of.is(Kind::undefined)) fail(of.text());
  if (auto found = own_attribute(of, name)) return *found;
  if (of.is(Kind::dict)) {
    if (const Value* found = of.as<Dict>().member(name)) return *found;
  }
  return Value::undefined(described(of, name));
}

/// Reads `of[key]`: keys first, then methods.
Value item(const Value& of, const Value& key, Meter& meter) {
  if (of.is(Kind::undefined)) fail(of.text());
  if (auto found = element(of, key, meter)) return *found;
  if (key.is(Kind::string)) {
    if (auto found = own_attribute(of, key.text())) return *found;
    return Value::undefined(described(of, key.text()));
  }
  const std::string type(of.is(Kind::none) ? "None" : std::string(type_name(of)) + " object");
  return Value::undefined("'" + type + "' has no element " + repr(key, meter));
}

namespace {

// Clamp the bounds of a slice.
struct Bounds {
  std::int64_t start, step, size;
};

Bounds bounds(std::int64_t n, const Value& start, const Value& stop, const Value& step) {
  for (const Value* bound : {&start, &stop, &step}) {
    if (!bound->is(Kind::none)) to_index(*bound, "a bound of a slice");
  }
  const std::int64_t by = step.is(Kind::none) ? 1 : step.integer();
  if (by == 0) fail("the step of a slice cannot be zero");
  const std::int64_t low = by < 0 ? -1 : 0, high = by < 0 ? n - 1 : n;
  const auto clamp = [&](const Value& bound, std::int64_t fallback) {
    if (bound.is(Kind::none)) return fallback;
    const std::int64_t value = bound.integer() < 0 ? bound.integer() + n : bound.integer();
    return std::clamp(value, low, high);
  };
  const std::int64_t from = clamp(start, by < 0 ? high : low);
  const std::int64_t to = clamp(stop, by < 0 ? low : high);
  const std::int64_t distance = by < 0 ? from - to : to - from;
  if (distance <= 0) return Bounds{from, by, 0};
  const std::int64_t stride = by < 0 ? (by == INT64_MIN ? INT64_MAX : -by) : by;
  return Bounds{from, by, (distance - 1) / stride + 1};
}

}  // namespace

// Cut a slice out of a text, a list, a tuple or a range.
Value slice(const Value& of, const Value& start, const Value& stop, const Value& step,
            Meter& meter) {
  if (of.is(Kind::undefined)) fail(of.text());
  const bool text = of.is(Kind::string);
  if (!text && !of.is(Kind::list) && !of.is(Kind::tuple) && !of.is(Kind::range)) {
    fail("'" + std::string(type_name(of)) + "' object cannot be sliced");
  }
  if (text) meter.work(of.text().size());
  const Bounds range = bounds(*length(of), start, stop, step);
  if (of.is(Kind::range)) {
    const Range& from = of.as<Range>();
    auto part = std::make_shared<Range>();
    part->size = range.size;
    part->start = range.size == 0 ? from.start : from.start + range.start * from.step;
    part->step = range.size < 2 ? from.step : from.step * range.step;
    return Value::object(Kind::range, std::move(part));
  }
  if (text && range.step == 1) {
    const std::size_t begin = byte_offset(of.text(), static_cast<std::size_t>(range.start));
    const std::string_view rest = std::string_view(of.text()).substr(begin);
    return Value(rest.substr(0, byte_offset(rest, static_cast<std::size_t>(range.size))));
  }
  const std::vector<Value> letters = text ? collect(of, meter) : std::vector<Value>();
  const std::vector<Value>& items = text ? letters : of.items();
  std::vector<Value> out;
  std::string joined;
  for (std::int64_t i = 0, at = range.start; i < range.size; ++i, at += range.step) {
    const Value& picked = items[static_cast<std::size_t>(at)];
    text ? void(joined += picked.text()) : out.push_back(picked);
    if (i + 1 == range.size) break;  // the next position may not exist, nor fit
  }
  if (text) return Value(std::move(joined));
  meter.work(out.size() * sizeof(Value));
  return of.is(Kind::list) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

}  // namespace rose::text::jinja
