// Filters, tests, methods and operators, declared.

#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/text/template_value.h"

namespace rose::text::jinja {

// Say what a filter may ask of the program that runs it.
class Host {
 public:
  explicit Host(const Limits& limits) : meter_(limits) {}
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  virtual ~Host() = default;

  Meter& meter() { return meter_; }
  virtual std::int64_t now() const = 0;  ///< seconds since the epoch
  virtual Value make_namespace(Dict attributes) = 0;

 private:
  Meter meter_;
};

// Describe a filter, test or method by one line of a table.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

/// Arguments in the order of the parameters, absent ones empty.
struct Bound {
  std::vector<std::optional<Value>> values;
  Arguments* all = nullptr;  ///< of a function whose parameters are "*"

  bool has(std::size_t i) const { return values[i].has_value(); }
  const Value& operator[](std::size_t i) const { return *values[i]; }
  Value get(std::size_t i, Value fallback) const { return values[i].value_or(std::move(fallback)); }
};

/// `parameters`: names with commas; a name that ends in '=' may be left out; a leading '/' means
/// that none can be named in the call; "*" takes anything.
struct Native {
  std::string_view name;
  std::string_view parameters;
  Value (*call)(Host&, const Value& self, const Bound& arguments);
};

Bound bind(const Native& native, Arguments& arguments);  ///< fails as Python's calls do
Value call_native(Host& host, const Native& native, const Value& self, Arguments& arguments);
Value bound_method(const Native& native, const Value& self);  ///< a function that remembers `self`

/// The entry with that name, or null.
inline const Native* find_native(std::span<const Native> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Native& native) { return native.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Native* find_filter(std::string_view name);
const Native* find_test(std::string_view name);
const Native* find_global(std::string_view name);
const Native* find_method(const Value& self, std::string_view name);

struct Function : Object {
  const Native* native = nullptr;
  Value self;
};

// Declare what filters share with operators and methods.
std::int64_t to_index(const Value& value, std::string_view what);  ///< an integer, or fails
const std::string& to_text(const Value& value, std::string_view what);
Value add(const Value& a, const Value& b, Meter& meter);
Value arithmetic(std::string_view op, const Value& a, const Value& b, Meter& meter);
Value negate(const Value& value, bool minus);
Value attribute(const Value& of, std::string_view name);      ///< of.name
Value item(const Value& of, const Value& key, Meter& meter);  ///< of[key]
Value slice(const Value& of, const Value& start, const Value& stop, const Value& step,
            Meter& meter);
bool contains(const Value& in, const Value& value, Meter& meter);
bool compare(std::string_view op, const Value& a, const Value& b, Meter& meter);
std::string to_json(const Value& value, bool ensure_ascii, const std::optional<std::string>& indent,
                    std::string_view comma, std::string_view colon, bool sort_keys, Meter& meter);
std::string percent_format(const std::string& format, const Value& arguments, Meter& meter);
std::string brace_format(const std::string& format, const Arguments& arguments, Meter& meter);
std::string format_time(const std::string& format, std::int64_t seconds_since_epoch);
std::optional<std::int64_t> parse_integer(std::string_view text, int base);
std::optional<double> parse_real(std::string_view text);
Value round_number(const Value& value, std::int64_t digits);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        std::int64_t count, Meter& meter);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends = false);

}  // namespace rose::text::jinja
