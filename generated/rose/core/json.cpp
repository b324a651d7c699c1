// Parsing with positions, printing with the shortest numbers.

#include "rose/core/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "rose/core/error.h"

namespace rose::core {

namespace {

// Turn a byte offset into the line and column that an editor shows.
std::string position(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto is_head = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  const auto column =
      1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(start), before.end(), is_head);
  return fmt::format("{}:{}", line, column);
}

// Print for people: indented, with numbers as short as they can be.
void print(const json::value& value, std::size_t indent, std::string& out) {
  const std::string inner(indent + 2, ' ');
  if (value.is_object() && !value.get_object().empty()) {
    std::string_view separator = "{\n";
    for (const auto& [key, member] : value.get_object()) {
      out.append(separator).append(inner).append(json::serialize(json::string(key))).append(": ");
      print(member, indent + 2, out);
      separator = ",\n";
    }
    out.append("\n").append(indent, ' ').append("}");
  } else if (value.is_array() && !value.get_array().empty()) {
    std::string_view separator = "[\n";
    for (const auto& member : value.get_array()) {
      out.append(separator).append(inner);
      print(member, indent + 2, out);
      separator = ",\n";
    }
    out.append("\n").append(indent, ' ').append("]");
  } else if (value.is_double() && std::isfinite(value.get_double())) {
    std::array<char, 32> digits{};
    const auto end =
        std::to_chars(digits.data(), digits.data() + digits.size(), value.get_double());
    const std::string_view number(digits.data(), static_cast<std::size_t>(end.ptr - digits.data()));
    out.append(number);
    if (number.find_first_of(".e") == std::string_view::npos) out.append(".0");  // stays a double
  } else if (value.is_double()) {
    throw Error(Code::invalid_argument, "JSON has no infinity and no NaN");
  } else {
    out.append(json::serialize(value));
  }
}

// Fail with the file, the field, what was wanted and what was found.
std::string_view kind_name(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return "null";
    case json::kind::bool_: return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_: return "a number";
    case json::kind::string: return "a string";
    case json::kind::array: return "an array";
    case json::kind::object: return "an object";
  }
  return "something else";
}

[[noreturn]] void wrong_type(std::string_view where, std::string_view key, std::string_view wanted,
                             const json::value& value) {
  std::string found = std::string(kind_name(value));
  if (value.is_number() || value.is_bool()) found = json::serialize(value);
  throw Error(Code::corrupt, fmt::format("\"{}\" must be {}, and is {}", key, wanted, found))
      .in(std::string(where));
}

const json::value& require(const json::object& object, std::string_view key,
                           std::string_view where) {
  if (const json::value* value = find(object, key)) return *value;
  throw Error(Code::corrupt, fmt::format("\"{}\" is missing", key)).in(std::string(where));
}

std::int64_t integer(const json::value& value, std::string_view key, std::string_view where) {
  if (value.is_int64()) return value.get_int64();
  if (value.is_double()) {
    const double number = value.get_double();
    constexpr double exact = 9007199254740992.0;  // 2^53: beyond it a double skips integers
    if (std::trunc(number) == number && std::fabs(number) <= exact) {
      return static_cast<std::int64_t>(number);
    }
  }
  wrong_type(where, key, "an integer", value);
}

}  // namespace

// Parse, and locate the first byte that could not be.
json::value parse_json(std::string_view text, std::string_view where, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    throw Error(Code::resource_exhausted, fmt::format("the JSON text has {} bytes, more than the "
                                                      "{} allowed here",
                                                      text.size(), limits.bytes))
        .in(std::string(where));
  }
  json::parse_options options;
  options.max_depth = limits.depth;
  json::parser parser({}, options);
  boost::system::error_code failed;
  const std::size_t used = parser.write_some(text.data(), text.size(), failed);
  std::size_t at = used;
  std::string reason;
  if (failed) {
    reason = failed == json::error::incomplete ? "it ends too early" : failed.message();
  } else {
    at = std::min(text.find_first_not_of(" \t\r\n", used), text.size());
    if (at < text.size()) reason = "there is more text after the document";
  }
  if (!reason.empty()) {
    if (failed == json::error::too_deep) {
      reason = fmt::format("it nests more than {} levels deep", limits.depth);
    }
    throw Error(Code::corrupt, fmt::format("not valid JSON: {}", reason))
        .in(fmt::format("{}:{}", where, position(text, at)));
  }
  return parser.release();
}

std::string pretty_json(const json::value& value) {
  std::string out;
  print(value, 0, out);
  return out;
}

// One getter per type, over the same two questions.
const json::value* find(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::int64_t get_int(const json::object& object, std::string_view key, std::string_view where) {
  return integer(require(object, key, where), key, where);
}

double get_double(const json::object& object, std::string_view key, std::string_view where) {
  const json::value& value = require(object, key, where);
  if (!value.is_number()) wrong_type(where, key, "a number", value);
  return value.to_number<double>();
}

bool get_bool(const json::object& object, std::string_view key, std::string_view where) {
  const json::value& value = require(object, key, where);
  if (!value.is_bool()) wrong_type(where, key, "a boolean", value);
  return value.get_bool();
}

std::string_view get_string(const json::object& object, std::string_view key,
                            std::string_view where) {
  const json::value& value = require(object, key, where);
  if (!value.is_string()) wrong_type(where, key, "a string", value);
  return value.get_string();
}

const json::object& get_object(const json::object& object, std::string_view key,
                               std::string_view where) {
  const json::value& value = require(object, key, where);
  if (!value.is_object()) wrong_type(where, key, "an object", value);
  return value.get_object();
}

const json::array& get_array(const json::object& object, std::string_view key,
                             std::string_view where) {
  const json::value& value = require(object, key, where);
  if (!value.is_array()) wrong_type(where, key, "an array", value);
  return value.get_array();
}

std::int64_t get_int_or(const json::object& object, std::string_view key, std::int64_t fallback,
                        std::string_view where) {
  return find(object, key) ? get_int(object, key, where) : fallback;
}

double get_double_or(const json::object& object, std::string_view key, double fallback,
                     std::string_view where) {
  return find(object, key) ? get_double(object, key, where) : fallback;
}

bool get_bool_or(const json::object& object, std::string_view key, bool fallback,
                 std::string_view where) {
  return find(object, key) ? get_bool(object, key, where) : fallback;
}

std::string_view get_string_or(const json::object& object, std::string_view key,
                               std::string_view fallback, std::string_view where) {
  return find(object, key) ? get_string(object, key, where) : fallback;
}

const json::object& as_object(const json::value& value, std::string_view where) {
  if (value.is_object()) return value.get_object();
  throw Error(Code::corrupt, fmt::format("must be a JSON object, and is {}", kind_name(value)))
      .in(std::string(where));
}

}  // namespace rose::core
