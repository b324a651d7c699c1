// Read the fields of a request.

#include "rose/serve/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace rose::serve {

// Look a field up, and say what it is instead.
std::string_view kind_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return "a boolean";
    case json::kind::string: return "a string";
    case json::kind::array: return "an array";
    case json::kind::object: return "an object";
    case json::kind::double_: return "a decimal number";
    default: return "an integer";
  }
}

void wrong_type(const std::string& param, std::string_view expected, const json::value& got) {
  invalid(fmt::format("Invalid type for '{}': expected {}, but got {} instead.", param, expected,
                      kind_of(got)),
          param, "invalid_type");
}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const json::value* Fields::find(std::string_view name) {
  known_.emplace(name);
  return core::find(object_, name);
}

void Fields::require(std::string_view name) {
  if (!has(name))
    invalid(fmt::format("Missing required parameter: '{}'.", path(name)), path(name),
            "missing_required_parameter");
}

// Numbers in their range.
double Fields::number(std::string_view name, double fallback, double least, double most) {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_number()) wrong_type(path(name), "a decimal", *value);
  const double number = value->to_number<double>();
  if (number < least)
    invalid(fmt::format("Invalid '{}': decimal below minimum value. Expected a value >= {}, but "
                        "got {} instead.",
                        path(name), least, number),
            path(name), "decimal_below_min_value");
  if (!(number <= most))
    invalid(fmt::format("Invalid '{}': decimal above maximum value. Expected a value <= {}, but "
                        "got {} instead.",
                        path(name), most, number),
            path(name), "decimal_above_max_value");
  return number;
}

std::int64_t Fields::integer(std::string_view name, std::int64_t fallback, std::int64_t least,
                             std::int64_t most) {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  boost::system::error_code error;
  const auto number = value->is_number() ? value->to_number<std::int64_t>(error) : 0;
  if (value->is_uint64() && error)
    invalid(fmt::format("Invalid '{}': integer above maximum value. Expected a value <= {}.",
                        path(name), most),
            path(name), "integer_above_max_value");
  if (!value->is_number() || error) wrong_type(path(name), "an integer", *value);
  if (number < least)
    invalid(fmt::format("Invalid '{}': integer below minimum value. Expected a value >= {}, but "
                        "got {} instead.",
                        path(name), least, number),
            path(name), "integer_below_min_value");
  if (number > most)
    invalid(fmt::format("Invalid '{}': integer above maximum value. Expected a value <= {}, but "
                        "got {} instead.",
                        path(name), most, number),
            path(name), "integer_above_max_value");
  return number;
}

// Flags, texts, lists, objects.
bool Fields::flag(std::string_view name, bool fallback) {
  const json::value* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) wrong_type(path(name), "a boolean", *value);
  return value->get_bool();
}

std::string Fields::text(std::string_view name, std::string_view fallback) {
  const json::value* value = find(name);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) wrong_type(path(name), "a string", *value);
  return std::string(value->get_string());
}

std::string Fields::choice(std::string_view name, std::string_view fallback,
                           std::initializer_list<std::string_view> allowed) {
  std::string value = text(name, fallback);
  if (std::ranges::find(allowed, value) == allowed.end()) {
    std::string list;
    for (const std::string_view one : allowed)
      list += fmt::format("{}'{}'", list.empty() ? "" : ", ", one);
    invalid(fmt::format("Invalid value: '{}'. Supported values are: {}.", value, list), path(name),
            "invalid_value");
  }
  return value;
}

const json::array* Fields::array(std::string_view name, std::size_t least, std::size_t most) {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) wrong_type(path(name), "an array", *value);
  const json::array& list = value->get_array();
  if (list.size() < least)
    invalid(fmt::format("Invalid '{}': empty array. Expected an array with minimum length {}.",
                        path(name), least),
            path(name), "empty_array");
  if (list.size() > most)
    invalid(fmt::format("Invalid '{}': array too long. Expected an array with maximum length {}, "
                        "but got an array with length {} instead.",
                        path(name), most, list.size()),
            path(name), "array_above_max_length");
  return &list;
}

const json::object* Fields::object(std::string_view name) {
  const json::value* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) wrong_type(path(name), "an object", *value);
  return &value->get_object();
}

// Refuse what nobody asked for.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t corner = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t swapped = corner + (a[i - 1] == b[j - 1] ? 0 : 1);
      corner = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, swapped}));
    }
  }
  return row.back();
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void Fields::finish() {
  for (const auto& [name, value] : object_) {
    if (known_.contains(std::string_view(name))) continue;
    std::string_view nearest;
    std::size_t best = 3;
    constexpr std::size_t longest = 64;
    for (const std::string& known : known_)
      if (name.size() < longest && distance(name, known) < best)
        best = distance(name, known), nearest = known;
    const std::string hint = nearest.empty() ? "" : fmt::format(" Did you mean '{}'?", nearest);
    invalid(fmt::format("Unknown parameter: '{}'.{}", path(name), hint), path(name),
            "unknown_parameter");
  }
}

}  // namespace rose::serve
