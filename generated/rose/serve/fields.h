// Read the fields of a request.

#pragma once

#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "rose/serve/api_error.h"

namespace rose::serve {

/// Every call throws ApiError that names the field by its path.
class Fields {
 public:
  Fields(const json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  const json::value* find(std::string_view name);  ///< null when absent or null
  bool has(std::string_view name) { return find(name) != nullptr; }
  double number(std::string_view name, double fallback, double least, double most);
  std::int64_t integer(std::string_view name, std::int64_t fallback, std::int64_t least,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max());
  bool flag(std::string_view name, bool fallback);
  std::string text(std::string_view name, std::string_view fallback = "");
  std::string choice(std::string_view name, std::string_view fallback,
                     std::initializer_list<std::string_view> allowed);
  const json::array* array(std::string_view name, std::size_t least, std::size_t most);
  const json::object* object(std::string_view name);

  void require(std::string_view name);  ///< "Missing required parameter"
  void ignore(std::initializer_list<std::string_view> names);
  void finish();  ///< refuses what nobody asked for
  std::string path(std::string_view name) const;

 private:
  const json::object& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

[[noreturn]] void wrong_type(const std::string& param, std::string_view expected,
                             const json::value& got);
std::string_view kind_of(const json::value& value);  ///< "a string", "an object", …

}  // namespace rose::serve
