// Tests, and the functions that a template can call.

#include <algorithm>

#include "rose/text/template_filters.h"
#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

// Decide what the tests ask.
template <Kind K>
Value is_kind(Host&, const Value& self, const Bound&) {
  return Value(self.is(K));
}

template <bool Wanted>
Value is_boolean(Host&, const Value& self, const Bound&) {
  return Value(self.is(Kind::boolean) && (self.integer() != 0) == Wanted);
}

Value has_rest(Host& in, const Value& self, const Value& divisor, std::int64_t rest) {
  return Value(equal(arithmetic("%", self, divisor, in.meter()), Value(rest), in.meter()));
}

Value is_case(Host& in, const Value& self, const char* method) {
  Arguments none;
  const Value text(str(self, in.meter()));
  return call_native(in, *find_method(text, method), text, none);
}

Value is_same(Host& in, const Value& self, const Bound& a) {
  if (self.kind() != a[0].kind()) return Value(false);
  const bool by_value = self.identity() == nullptr || self.is(Kind::string);
  return Value(by_value ? equal(self, a[0], in.meter()) : self.identity() == a[0].identity());
}

Value is_sequence(Host&, const Value& self, const Bound&) {
  return Value(length(self).has_value() && !self.is(Kind::view));
}

Value is_callable(Host&, const Value& self, const Bound&) {
  return Value(self.is(Kind::function) || self.is(Kind::macro) || self.is(Kind::loop) ||
               self.is(Kind::undefined));
}

// List the tests.
#define ROSE_COMPARISON(name, op)                                                          \
  {                                                                                        \
    name, "other",                                                                         \
        [](auto& in, auto& s, auto& a) { return Value(compare(op, s, a[0], in.meter())); } \
  }

constexpr Native kTests[] = {
    {"boolean", "", is_kind<Kind::boolean>},
    {"callable", "", is_callable},
    {"defined", "", [](auto&, auto& s, auto&) { return Value(!s.is(Kind::undefined)); }},
    {"divisibleby", "num", [](auto& in, auto& s, auto& a) { return has_rest(in, s, a[0], 0); }},
    {"escaped", "", [](auto&, auto&, auto&) { return Value(false); }},
    {"even", "", [](auto& in, auto& s, auto&) { return has_rest(in, s, Value(2), 0); }},
    {"false", "", is_boolean<false>},
    {"filter", "",
     [](auto&, auto& s, auto&) { return Value(s.is(Kind::string) && find_filter(s.text())); }},
    {"float", "", is_kind<Kind::real>},
    {"in", "seq", [](auto& in, auto& s, auto& a) { return Value(contains(a[0], s, in.meter())); }},
    {"integer", "", is_kind<Kind::integer>},
    {"iterable", "", [](auto&, auto& s, auto&) { return Value(iterable(s)); }},
    {"lower", "", [](auto& in, auto& s, auto&) { return is_case(in, s, "islower"); }},
    {"mapping", "", is_kind<Kind::dict>},
    {"none", "", is_kind<Kind::none>},
    {"number", "", [](auto&, auto& s, auto&) { return Value(s.is_number()); }},
    {"odd", "", [](auto& in, auto& s, auto&) { return has_rest(in, s, Value(2), 1); }},
    {"sameas", "other", is_same},
    {"sequence", "", is_sequence},
    {"string", "", is_kind<Kind::string>},
    {"test", "",
     [](auto&, auto& s, auto&) { return Value(s.is(Kind::string) && find_test(s.text())); }},
    {"true", "", is_boolean<true>},
    {"undefined", "", is_kind<Kind::undefined>},
    {"upper", "", [](auto& in, auto& s, auto&) { return is_case(in, s, "isupper"); }},
    ROSE_COMPARISON("==", "=="),
    ROSE_COMPARISON("eq", "=="),
    ROSE_COMPARISON("equalto", "=="),
    ROSE_COMPARISON("!=", "!="),
    ROSE_COMPARISON("ne", "!="),
    ROSE_COMPARISON(">", ">"),
    ROSE_COMPARISON("gt", ">"),
    ROSE_COMPARISON("greaterthan", ">"),
    ROSE_COMPARISON(">=", ">="),
    ROSE_COMPARISON("ge", ">="),
    ROSE_COMPARISON("<", "<"),
    ROSE_COMPARISON("lt", "<"),
    ROSE_COMPARISON("lessthan", "<"),
    ROSE_COMPARISON("<=", "<="),
    ROSE_COMPARISON("le", "<="),
};
#undef ROSE_COMPARISON

// Provide the few functions that chat templates may call.
Value make_range(Host&, const Value&, const Bound& a) {
  const auto& given = a.all->positional;
  if (given.empty() || given.size() > 3 || !a.all->keyword.empty())
    fail("range takes one to three integers");
  std::int64_t bounds[3] = {0, 0, 1};
  for (std::size_t i = 0; i < given.size(); ++i) {
    bounds[given.size() == 1 ? 1 : i] = to_index(given[i], "a bound of range");
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) fail("the step of a range cannot be zero");
  auto range = std::make_shared<Range>();
  range->start = start;
  range->step = step;
  if (step > 0 ? start < stop : start > stop) {
    const auto unsigned_of = [](std::int64_t x) { return static_cast<std::uint64_t>(x); };
    const std::uint64_t distance =
        step > 0 ? unsigned_of(stop) - unsigned_of(start) : unsigned_of(start) - unsigned_of(stop);
    const std::uint64_t stride = step > 0 ? unsigned_of(step) : 0 - unsigned_of(step);
    const std::uint64_t size = (distance - 1) / stride + 1;
    if (size > 100'000) fail("a range of more than 100000 numbers");
    range->size = static_cast<std::int64_t>(size);
  }
  return Value::object(Kind::range, std::move(range));
}

// Make dictionaries and namespaces; list the functions.
Dict make_dict(Host& in, const Bound& a) {
  Dict out;
  if (a.all->positional.size() > 1) fail("dict takes one mapping or sequence, and keywords");
  for (const Value& from : a.all->positional) {
    if (from.is(Kind::dict)) {
      for (const auto& [key, value] : from.as<Dict>().entries) out.set(key, value);
      continue;
    }
    for (const Value& pair : collect(from, in.meter())) {
      const std::vector<Value> both = collect(pair, in.meter());
      if (both.size() != 2) fail("dict needs pairs of a key and a value");
      out.set(both[0], both[1]);
    }
  }
  for (const auto& [name, value] : a.all->keyword) out.set(Value(name), value);
  return out;
}

constexpr Native kGlobals[] = {
    {"range", "*", make_range},
    {"dict", "*", [](auto& in, auto&, auto& a) { return Value::dict(make_dict(in, a)); }},
    {"namespace", "*",
     [](auto& in, auto&, auto& a) {
       Dict attributes = make_dict(in, a);
       for (const auto& [name, value] : attributes.entries) {
         if (name.is(Kind::string) && name.text().starts_with('_'))
           fail("names that begin with '_' are reserved");
       }
       return in.make_namespace(std::move(attributes));
     }},
    {"raise_exception", "message",
     [](auto& in, auto&, auto& a) -> Value {
       fail(str(a[0], in.meter()), "the template itself refuses this conversation");
     }},
    {"strftime_now", "format",
     [](auto& in, auto&, auto& a) {
       return Value(format_time(to_text(a[0], "the format"), in.now()));
     }},
};

}  // namespace

const Native* find_test(std::string_view name) {
  return find_native(kTests, name);
}
const Native* find_global(std::string_view name) {
  return find_native(kGlobals, name);
}

}  // namespace rose::text::jinja
