// Values that behave as Python's.

#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/json/value.hpp>

#include "rose/text/template_limits.h"

namespace rose::text::jinja {

// Name the kinds of value a template can meet.
enum class Kind : std::uint8_t {
  undefined,  // a name that nobody set, a key that is not there
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  view,  // what d.items(), d.keys(), d.values() return
  range,
  iterator,  // what map, select and their like return: can be walked once
  space,     // namespace(...): the only thing a template can change in place
  function,
  macro,
  loop,
};

class Value;

// Let kinds that come later answer for themselves.
struct Object {
  Object() = default;
  Object(const Object&) = default;
  Object(Object&&) = default;
  Object& operator=(const Object&) = default;
  Object& operator=(Object&&) = default;
  virtual ~Object() = default;
  int depth = 1;  ///< containers inside containers, this one included

  virtual std::optional<Value> attribute(std::string_view name);  ///< of a macro or a loop
  virtual std::optional<std::int64_t> size() { return std::nullopt; }
  virtual std::string shown() const { return "<function>"; }
};

struct Dict;

// Keep any value in a tag, a scalar and a shared pointer.
class Value {
 public:
  Value() = default;  ///< None
  Value(std::same_as<bool> auto b) : kind_(Kind::boolean), integer_(b ? 1 : 0) {}
  Value(int i) : Value(static_cast<std::int64_t>(i)) {}
  Value(std::int64_t i) : kind_(Kind::integer), integer_(i) {}
  Value(double d) : kind_(Kind::real), real_(d) {}
  Value(std::string text);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}

  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(Dict dict);
  static Value undefined(std::string message);  ///< `message`: what using it would raise
  static Value iterator(std::function<std::optional<Value>()> next, const Value& source);
  static Value object(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_number() const { return is_integer() || kind_ == Kind::real; }
  bool is_integer() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  std::int64_t integer() const { return integer_; }  ///< of an integer or a boolean
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  const std::string& text() const;          ///< of a string; what an undefined raises
  const std::vector<Value>& items() const;  ///< of a list or tuple
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  int depth() const { return object_ ? object_->depth : 0; }
  const void* identity() const { return object_.get(); }

 private:
  Kind kind_ = Kind::none;
  union {
    std::int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<Object> object_;
};

struct Text : Object {
  std::string text;
};
struct Sequence : Object {
  std::vector<Value> items;
};

// Keep a dictionary in order of insertion, with an index once it is large.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;  ///< null when absent; fails on an unhashable key
  const Value* member(std::string_view key) const;
  void set(const Value& key, Value value);

 private:
  std::optional<std::size_t> position(const Value& key) const;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash to entry, used from 9 entries
};

struct View : Object {
  enum class What { keys, values, items } what = What::items;
  Value dict;
};
struct Range : Object {
  std::int64_t start = 0, step = 1, size = 0;
  Value at(std::int64_t i) const { return Value(start + i * step); }
};
struct Iterator : Object {
  std::function<std::optional<Value>()> next;
};
struct Space : Object {
  Dict attributes;
};

// Declare what Python does with any value.
Value from_json(const boost::json::value& json);  ///< fails beyond `kDataNesting`
std::string_view type_name(const Value& value);   ///< Python's: "str", "NoneType", ...
bool truth(const Value& value);
std::optional<std::int64_t> length(const Value& value);  ///< nothing where len() raises
std::size_t hash(const Value& value);                    ///< fails on a list or a dict
bool equal(const Value& a, const Value& b, Meter& meter);
/// What `<` and its like compare by; fails where Python raises. Unordered: one side is NaN.
std::partial_ordering order(const Value& a, const Value& b, Meter& meter);
std::string str(const Value& value, Meter& meter);  ///< Python's str()
std::string repr(const Value& value, Meter& meter);
std::string real_repr(double value);  ///< shortest text that reads back

// Walk anything that can be walked.
class Cursor {
 public:
  Cursor(Value source, Meter& meter);  ///< fails where Python says "not iterable"
  std::optional<Value> next();

 private:
  Value source_;
  std::size_t at_ = 0;
  Meter* meter_;
};
std::vector<Value> collect(const Value& value, Meter& meter);
bool iterable(const Value& value);

}  // namespace rose::text::jinja
