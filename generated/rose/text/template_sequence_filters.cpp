// Filters of sequences.

#include <algorithm>

#include "rose/text/template_filters.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {

// Take a path apart once, follow it for each item.
AttributePath::AttributePath(const Value& attribute) {
  if (attribute.is(Kind::none)) return;
  if (!attribute.is(Kind::string)) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.text();
  while (true) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(digits ? Value(*parse_integer(part, 10)) : Value(part));
    if (dot == rest.size()) return;
    rest.remove_prefix(dot + 1);
  }
}

Value AttributePath::of(Value value, Meter& meter, const Value* fallback) const {
  for (const Value& part : parts_) {
    value = item(value, part, meter);
    if (fallback != nullptr && value.is(Kind::undefined)) value = *fallback;
  }
  return value;
}

Value walk_once(const Value& list, Meter& meter) {
  return Value::iterator([cursor = Cursor(list, meter)]() mutable { return cursor.next(); }, list);
}

namespace {

// Compare what the caller asked for, texts without case by default.
Value folded(const Value& value, bool case_sensitive) {
  return value.is(Kind::string) && !case_sensitive ? Value(lower(value.text())) : value;
}

struct SortKey {
  AttributePath path;
  bool case_sensitive;
  Value of(const Value& value, Meter& meter) const {
    return folded(path.of(value, meter), case_sensitive);
  }
};

SortKey sort_key(const Bound& a, std::size_t case_at, std::size_t attribute_at) {
  return {AttributePath(a.get(attribute_at, Value())), a.has(case_at) && truth(a[case_at])};
}

std::vector<Value> sort_by(std::vector<std::pair<Value, Value>> keyed, bool descending,
                           Meter& meter) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return (descending ? order(y.first, x.first, meter) : order(x.first, y.first, meter)) < 0;
  });
  std::vector<Value> out;
  out.reserve(keyed.size());
  for (auto& [key, value] : keyed) out.push_back(std::move(value));
  return out;
}

// Sort by one attribute or by several.
Value sorted(Host& in, const Value& self, const Bound& a) {
  const bool case_sensitive = a.has(1) && truth(a[1]);
  std::vector<AttributePath> paths;
  if (a.has(2) && a[2].is(Kind::string)) {
    std::string_view rest = a[2].text();
    for (std::size_t comma = 0; comma != rest.npos;
         rest.remove_prefix(std::min(comma + 1, rest.size()))) {
      comma = rest.find(',');
      paths.emplace_back(Value(rest.substr(0, comma)));
    }
  } else {
    paths.emplace_back(a.get(2, Value()));
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& value : collect(self, in.meter())) {
    std::vector<Value> key;
    key.reserve(paths.size());
    for (const auto& path : paths)
      key.push_back(folded(path.of(value, in.meter()), case_sensitive));
    keyed.emplace_back(Value::list(std::move(key)), std::move(value));
  }
  return Value::list(sort_by(std::move(keyed), a.has(0) && truth(a[0]), in.meter()));
}

Value dict_sorted(Host& in, const Value& self, const Bound& a) {
  if (!self.is(Kind::dict))
    fail("dictsort needs a mapping, not '" + std::string(type_name(self)) + "'");
  const std::string by = a.has(1) ? str(a[1], in.meter()) : "key";
  if (by != "key" && by != "value") fail("dictsort sorts by 'key' or by 'value'");
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : self.as<Dict>().entries) {
    keyed.emplace_back(folded(by == "key" ? key : value, a.has(0) && truth(a[0])),
                       Value::tuple({key, value}));
  }
  return Value::list(sort_by(std::move(keyed), a.has(2) && truth(a[2]), in.meter()));
}

Value extreme(Host& in, const Value& self, const Bound& a, bool largest) {
  const SortKey by = sort_key(a, 0, 1);
  Cursor cursor(self, in.meter());
  std::optional<Value> best = cursor.next();
  if (!best) return Value::undefined("an empty sequence has no smallest or largest item");
  Value best_key = by.of(*best, in.meter());
  while (auto next = cursor.next()) {
    Value key = by.of(*next, in.meter());
    const auto comparison = order(key, best_key, in.meter());
    if (largest ? comparison > 0 : comparison < 0) {
      best = std::move(next);
      best_key = std::move(key);
    }
  }
  return *best;
}

// Map and select when the result is walked, not before.
using Step = std::function<std::optional<Value>(Cursor&)>;

/// An iterator over `self`; `make` runs once, at the first step, and not at all when it is empty.
Value lazily(Host& in, const Value& self, std::function<Step()> make) {
  struct State {
    std::optional<Cursor> cursor;
    Step step;
    bool done = false;
  };
  auto next = [&in, self, make = std::move(make),
               state = std::make_shared<State>()]() -> std::optional<Value> {
    if (state->done) return std::nullopt;
    if (!state->cursor) {
      if (!truth(self)) {
        state->done = true;
        return std::nullopt;
      }
      state->step = make();
      state->cursor.emplace(self, in.meter());
    }
    auto item = state->step(*state->cursor);
    state->done = !item;
    return item;
  };
  return Value::iterator(std::move(next), self);
}

// Map an attribute or a filter over a sequence.
Value map(Host& in, const Value& self, const Bound& a) {
  return lazily(in, self, [&in, arguments = *a.all]() -> Step {
    if (arguments.positional.empty()) {
      AttributePath path;
      Value fallback;
      bool by_attribute = false, has_fallback = false;
      for (const auto& [name, value] : arguments.keyword) {
        if (name == "attribute") {
          path = AttributePath(value);
          by_attribute = true;
        } else if (name == "default") {
          fallback = value;
          has_fallback = !value.is(Kind::none);
        } else {
          fail("map does not take the argument '" + name + "'");
        }
      }
      if (!by_attribute) fail("map needs the name of a filter, or attribute=");
      return [&in, path, fallback, has_fallback](Cursor& cursor) -> std::optional<Value> {
        auto item = cursor.next();
        if (item) item = path.of(*item, in.meter(), has_fallback ? &fallback : nullptr);
        return item;
      };
    }
    const std::string& name = to_text(arguments.positional[0], "the name of a filter");
    const Native* filter = find_filter(name);
    if (filter == nullptr) fail("there is no filter named '" + name + "'");
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    return [&in, filter, rest](Cursor& cursor) -> std::optional<Value> {
      auto item = cursor.next();
      if (!item) return std::nullopt;
      Arguments once = rest;
      return call_native(in, *filter, *item, once);
    };
  });
}

// Choose items by a test.

/// select, reject, selectattr and rejectattr.
Value choose(Host& in, const Value& self, const Bound& a, bool wanted, bool by_attribute) {
  return lazily(in, self, [&in, arguments = *a.all, wanted, by_attribute]() -> Step {
    std::size_t used = 0;
    AttributePath path;
    if (by_attribute) {
      if (arguments.positional.empty()) fail("the attribute to select by is missing");
      path = AttributePath(arguments.positional[used++]);
    }
    const Native* test = nullptr;
    if (used < arguments.positional.size()) {
      const std::string& name = to_text(arguments.positional[used++], "the name of a test");
      test = find_test(name);
      if (test == nullptr) fail("there is no test named '" + name + "'");
    }
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin(),
                          rest.positional.begin() + static_cast<std::ptrdiff_t>(used));
    return [&in, path, test, rest, wanted](Cursor& cursor) -> std::optional<Value> {
      while (auto item = cursor.next()) {
        const Value seen = path.of(*item, in.meter());
        Arguments once = rest;
        if (truth(test ? call_native(in, *test, seen, once) : seen) == wanted) return item;
      }
      return std::nullopt;
    };
  });
}

// Drop repetitions; cut into batches and columns.
Value unique(Host& in, const Value& self, const Bound& a) {
  const SortKey by = sort_key(a, 0, 1);
  const auto cursor = std::make_shared<Cursor>(self, in.meter());
  const auto seen = std::make_shared<Dict>();
  return Value::iterator(
      [&in, by, cursor, seen]() -> std::optional<Value> {
        while (auto item = cursor->next()) {
          const Value key = by.of(*item, in.meter());
          if (seen->find(key) != nullptr) continue;
          seen->set(key, Value());
          return item;
        }
        return std::nullopt;
      },
      self);
}

Value batched(Host& in, const Value& self, const Bound& a) {
  const std::int64_t size = to_index(a[0], "the size of a batch");
  const Value fill = a.get(1, Value());
  const std::vector<Value> items = collect(self, in.meter());
  if (size > 0 && !fill.is(Kind::none)) in.meter().will_make(static_cast<std::uint64_t>(size));
  std::vector<Value> batches, batch;
  for (const Value& item : items) {
    if (static_cast<std::int64_t>(batch.size()) == size)
      batches.push_back(Value::list(std::exchange(batch, {})));
    batch.push_back(item);
  }
  if (!batch.empty()) {
    while (!fill.is(Kind::none) && static_cast<std::int64_t>(batch.size()) < size)
      batch.push_back(fill);
    batches.push_back(Value::list(std::move(batch)));
  }
  return walk_once(Value::list(std::move(batches)), in.meter());
}

Value sliced(Host& in, const Value& self, const Bound& a) {
  const std::int64_t columns = to_index(a[0], "the number of slices");
  if (columns == 0) fail("division by zero");
  const Value fill = a.get(1, Value());
  const std::vector<Value> items = collect(self, in.meter());
  std::vector<Value> slices;
  const auto n = static_cast<std::int64_t>(items.size());
  std::int64_t at = 0;
  for (std::int64_t i = 0; i < columns; ++i) {
    in.meter().step();
    const std::int64_t end = at + n / columns + (i < n % columns ? 1 : 0);
    std::vector<Value> part(items.begin() + at, items.begin() + end);
    if (!fill.is(Kind::none) && i >= n % columns) part.push_back(fill);
    slices.push_back(Value::list(std::move(part)));
    at = end;
  }
  return walk_once(Value::list(std::move(slices)), in.meter());
}

// Take the first, the last, the sum, the other way round.
Value last_of(Host& in, const Value& self, const Bound&) {
  if (self.is(Kind::iterator) || (!self.is(Kind::undefined) && !length(self))) {
    fail("'" + std::string(type_name(self)) + "' object cannot be walked backwards",
         "make it a list first: x | list | last");
  }
  const std::vector<Value> items = collect(self, in.meter());
  return items.empty() ? Value::undefined("no last item, the sequence is empty") : items.back();
}

Value first_of(Host& in, const Value& self, const Bound&) {
  auto item = Cursor(self, in.meter()).next();
  return item ? *item : Value::undefined("no first item, the sequence is empty");
}

Value reversed(Host& in, const Value& self, const Bound&) {
  std::vector<Value> items = collect(self, in.meter());
  std::reverse(items.begin(), items.end());
  if (self.is(Kind::string)) {
    std::string out;
    for (const Value& item : items) out += item.text();
    return Value(std::move(out));
  }
  Value list = Value::list(std::move(items));
  return self.is(Kind::iterator) ? list : walk_once(list, in.meter());
}

Value summed(Host& in, const Value& self, const Bound& a) {
  const AttributePath path(a.get(0, Value()));
  Value total = a.get(1, Value(0));
  if (total.is(Kind::string)) fail("sum does not join texts", "use join");
  Cursor cursor(self, in.meter());
  while (const auto item = cursor.next())
    total = add(total, path.of(*item, in.meter()), in.meter());
  return total;
}

Value counted(Host&, const Value& self, const Bound&) {
  const auto n = length(self);
  if (!n)
    fail("'" + std::string(type_name(self)) + "' object has no length",
         self.is(Kind::iterator) ? "make it a list first: x | list | length" : "");
  return Value(*n);
}

Value item_pairs(Host& in, const Value& self, const Bound&) {
  return Value::iterator(
      [&in, self, cursor = std::shared_ptr<Cursor>()]() mutable -> std::optional<Value> {
        if (self.is(Kind::undefined)) return std::nullopt;
        if (!self.is(Kind::dict)) fail("only a mapping has items");
        if (!cursor) {
          Arguments none;
          cursor = std::make_shared<Cursor>(
              call_native(in, *find_method(self, "items"), self, none), in.meter());
        }
        return cursor->next();
      },
      self);
}

// List the filters of sequences.
constexpr Native kSequenceFilters[] = {
    {"attr", "name",
     [](auto&, auto& s, auto& a) {
       const std::string& name = to_text(a[0], "the name of an attribute");
       if (s.is(Kind::dict) && find_method(s, name) == nullptr)
         return Value::undefined("a dictionary has no attribute '" + name + "'");
       return attribute(s, name);
     }},
    {"batch", "linecount,fill_with=", batched},
    {"count", "", counted},
    {"dictsort", "case_sensitive=,by=,reverse=", dict_sorted},
    {"first", "", first_of},
    {"items", "", item_pairs},
    {"last", "", last_of},
    {"length", "", counted},
    {"list", "", [](auto& in, auto& s, auto&) { return Value::list(collect(s, in.meter())); }},
    {"map", "*", map},
    {"max", "case_sensitive=,attribute=",
     [](auto& in, auto& s, auto& a) { return extreme(in, s, a, true); }},
    {"min", "case_sensitive=,attribute=",
     [](auto& in, auto& s, auto& a) { return extreme(in, s, a, false); }},
    {"reject", "*", [](auto& in, auto& s, auto& a) { return choose(in, s, a, false, false); }},
    {"rejectattr", "*", [](auto& in, auto& s, auto& a) { return choose(in, s, a, false, true); }},
    {"reverse", "", reversed},
    {"select", "*", [](auto& in, auto& s, auto& a) { return choose(in, s, a, true, false); }},
    {"selectattr", "*", [](auto& in, auto& s, auto& a) { return choose(in, s, a, true, true); }},
    {"slice", "slices,fill_with=", sliced},
    {"sort", "reverse=,case_sensitive=,attribute=", sorted},
    {"sum", "attribute=,start=", summed},
    {"unique", "case_sensitive=,attribute=", unique},
};

}  // namespace

const Native* find_sequence_filter(std::string_view name) {
  return find_native(kSequenceFilters, name);
}

}  // namespace rose::text::jinja
