// Make values, look keys up, decide truth.

#include "rose/text/template_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

// Refuse containers nested too deep to walk.
int nested(int inner) {
  if (inner >= kDataNesting) {
    fail("values are nested more than " + std::to_string(kDataNesting) + " deep");
  }
  return inner + 1;
}

int deepest(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth;
}

}  // namespace

std::optional<Value> Object::attribute(std::string_view) {
  return std::nullopt;
}

// Make values, and note how deep they are.
Value::Value(std::string text) : kind_(Kind::string) {
  auto object = std::make_shared<Text>();
  object->text = std::move(text);
  object->depth = 0;
  object_ = std::move(object);
}

Value Value::object(Kind kind, std::shared_ptr<Object> object) {
  Value value;
  value.kind_ = kind;
  value.object_ = std::move(object);
  return value;
}

Value Value::undefined(std::string message) {
  Value value(std::move(message));
  value.kind_ = Kind::undefined;
  return value;
}

Value Value::list(std::vector<Value> items) {
  auto object = std::make_shared<Sequence>();
  object->depth = nested(deepest(items));
  object->items = std::move(items);
  return Value::object(Kind::list, std::move(object));
}

Value Value::tuple(std::vector<Value> items) {
  Value value = list(std::move(items));
  value.kind_ = Kind::tuple;
  return value;
}

Value Value::dict(Dict dict) {
  int depth = 0;
  for (const auto& [key, value] : dict.entries) {
    depth = std::max({depth, key.depth(), value.depth()});
  }
  dict.depth = nested(depth);
  return object(Kind::dict, std::make_shared<Dict>(std::move(dict)));
}

Value Value::iterator(std::function<std::optional<Value>()> next, const Value& source) {
  auto object = std::make_shared<Iterator>();
  object->next = std::move(next);
  object->depth = nested(source.depth());
  return Value::object(Kind::iterator, std::move(object));
}

const std::string& Value::text() const {
  return as<Text>().text;
}
const std::vector<Value>& Value::items() const {
  return as<Sequence>().items;
}

// Find a key by its hash, or one by one while there are few.
std::optional<std::size_t> Dict::position(const Value& key) const {
  Meter unlimited{Limits{}};  // keys are strings, numbers and tuples of them: small
  const std::size_t wanted = hash(key);
  if (index_.empty()) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (equal(entries[i].first, key, unlimited)) return i;
    }
    return std::nullopt;
  }
  const auto [first, last] = index_.equal_range(wanted);
  for (auto it = first; it != last; ++it) {
    if (equal(entries[it->second].first, key, unlimited)) return it->second;
  }
  return std::nullopt;
}

const Value* Dict::find(const Value& key) const {
  const auto at = position(key);
  return at ? &entries[*at].second : nullptr;
}

const Value* Dict::member(std::string_view key) const {
  if (!index_.empty()) return find(Value(key));
  for (const auto& [name, value] : entries) {
    if (name.is(Kind::string) && name.text() == key) return &value;
  }
  return nullptr;
}

void Dict::set(const Value& key, Value value) {
  if (const auto at = position(key)) {
    entries[*at].second = std::move(value);
    return;
  }
  entries.emplace_back(key, std::move(value));
  if (entries.size() < 9) return;
  if (index_.empty()) {
    for (std::size_t i = 0; i + 1 < entries.size(); ++i) index_.emplace(hash(entries[i].first), i);
  }
  index_.emplace(hash(key), entries.size() - 1);
}

// Take over a JSON value, members in their order.
Value from_json(const boost::json::value& json) {
  switch (json.kind()) {
    case boost::json::kind::null: return Value();
    case boost::json::kind::bool_: return Value(json.get_bool());
    case boost::json::kind::int64: return Value(json.get_int64());
    case boost::json::kind::double_: return Value(json.get_double());
    case boost::json::kind::uint64:
      fail("the integer " + std::to_string(json.get_uint64()) + " does not fit 64 bits",
           "pass it as a string");
    case boost::json::kind::string: return Value(std::string_view(json.get_string()));
    case boost::json::kind::array: {
      std::vector<Value> items;
      items.reserve(json.get_array().size());
      for (const auto& item : json.get_array()) items.push_back(from_json(item));
      return Value::list(std::move(items));
    }
    case boost::json::kind::object: {
      Dict dict;
      for (const auto& [key, value] : json.get_object()) {
        dict.set(Value(std::string_view(key)), from_json(value));
      }
      return Value::dict(std::move(dict));
    }
  }
  return Value();
}

// Name the kinds as Python does.
std::string_view type_name(const Value& value) {
  static constexpr std::string_view kNames[] = {"Undefined", "NoneType",  "bool",  "int",
                                                "float",     "str",       "list",  "tuple",
                                                "dict",      "dict view", "range", "generator",
                                                "Namespace", "function",  "Macro", "LoopContext"};
  return kNames[static_cast<int>(value.kind())];
}

// Decide truth and length as Python does.
bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return value.integer() != 0;
    case Kind::real: return value.real() != 0;
    default: {
      const auto n = length(value);
      return !n || *n != 0;
    }
  }
}

std::optional<std::int64_t> length(const Value& value) {
  const auto signed_size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: return signed_size(count_code_points(value.text()));
    case Kind::list:
    case Kind::tuple: return signed_size(value.items().size());
    case Kind::dict: return signed_size(value.as<Dict>().entries.size());
    case Kind::view: return length(value.as<View>().dict);
    case Kind::range: return value.as<Range>().size;
    case Kind::loop: return value.as<Object>().size();
    default: return std::nullopt;
  }
}

}  // namespace rose::text::jinja
