// JSON as the weaver meets it: book.json, Pandoc's syntax trees, the records of benches.
#pragma once

#include <boost/json.hpp>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace weave {

namespace json = boost::json;

inline std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

/// The string under `key`, or an empty one.
inline std::string_view text(const json::object& object, std::string_view key) {
  const json::value* found = object.if_contains(key);
  return found != nullptr && found->is_string() ? view(found->get_string()) : std::string_view{};
}

inline std::int64_t integer(const json::object& object, std::string_view key, std::int64_t otherwise = 0) {
  const json::value* found = object.if_contains(key);
  return found != nullptr && found->is_int64() ? found->get_int64() : otherwise;
}

inline bool truth(const json::object& object, std::string_view key) {
  const json::value* found = object.if_contains(key);
  return found != nullptr && found->is_bool() && found->get_bool();
}

/// The array under `key`, or an empty one.
inline const json::array& list(const json::object& object, std::string_view key) {
  static const json::array none;
  const json::value* found = object.if_contains(key);
  return found != nullptr && found->is_array() ? found->get_array() : none;
}

/// The object under `key`, or an empty one.
inline const json::object& object(const json::object& outer, std::string_view key) {
  static const json::object none;
  const json::value* found = outer.if_contains(key);
  return found != nullptr && found->is_object() ? found->get_object() : none;
}

/// A field by a path such as "peer.median" or "config.shapes.3.us"; null when there is none.
inline const json::value* dig(const json::object& fields, std::string_view path) {
  const json::value* at = fields.if_contains(path.substr(0, path.find('.')));
  while (at != nullptr && path.find('.') != path.npos) {
    path.remove_prefix(path.find('.') + 1);
    const std::string_view key = path.substr(0, path.find('.'));
    if (const json::array* items = at->if_array()) {
      std::size_t index = 0;
      const auto [end, problem] = std::from_chars(key.data(), key.data() + key.size(), index);
      const bool inside = problem == std::errc() && end == key.data() + key.size() && index < items->size();
      at = inside ? &(*items)[index] : nullptr;
    } else {
      at = at->is_object() ? at->get_object().if_contains(key) : nullptr;
    }
  }
  return at;
}

}  // namespace weave
