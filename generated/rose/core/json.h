// JSON: located errors, and getters that name the field.

#pragma once

#include <boost/json.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rose::core {

namespace json = boost::json;

struct JsonLimits {
  std::size_t bytes = std::size_t{256} << 20;
  std::size_t depth = 128;
};

/// Parses one JSON document. `where` names it in errors (a file, "request body"), which are
/// Error(corrupt) with line and column, or resource_exhausted beyond the limits.
json::value parse_json(std::string_view text, std::string_view where, JsonLimits limits = {});

/// The document indented by two spaces, members in their order, numbers at their shortest.
std::string pretty_json(const json::value& value);

// Typed access: a required field, an optional one, and a fallback.

/// The member, or null when it is absent or JSON null.
const json::value* find(const json::object& object, std::string_view key);

// Throw Error(corrupt) naming `where` and the key when it is missing or of another type.
// A number counts as an integer when its value is one (32000.0 does, 0.5 does not).
std::int64_t get_int(const json::object& object, std::string_view key, std::string_view where);
double get_double(const json::object& object, std::string_view key, std::string_view where);
bool get_bool(const json::object& object, std::string_view key, std::string_view where);
std::string_view get_string(const json::object& object, std::string_view key,
                            std::string_view where);
const json::object& get_object(const json::object& object, std::string_view key,
                               std::string_view where);
const json::array& get_array(const json::object& object, std::string_view key,
                             std::string_view where);

// The same, with a value for a member that is absent or null. A wrong type is still an error.
std::int64_t get_int_or(const json::object& object, std::string_view key, std::int64_t fallback,
                        std::string_view where);
double get_double_or(const json::object& object, std::string_view key, double fallback,
                     std::string_view where);
bool get_bool_or(const json::object& object, std::string_view key, bool fallback,
                 std::string_view where);
std::string_view get_string_or(const json::object& object, std::string_view key,
                               std::string_view fallback, std::string_view where);

/// A document that must be an object at its top, such as every configuration file.
const json::object& as_object(const json::value& value, std::string_view where);

}  // namespace rose::core
