// Results kept by the content of what they were made from, in build/weave/cache. Safe to delete at any time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weave {

/// SHA-256, in hexadecimal.
std::string sha256(std::string_view bytes);

class Cache {
 public:
  explicit Cache(std::string folder) : folder_(std::move(folder)) {}

  /// `kind` is a folder, `key` the hash of everything that the result depends on.
  std::string path(std::string_view kind, std::string_view key) const;
  std::optional<std::string> find(std::string_view kind, std::string_view key) const;
  void keep(std::string_view kind, std::string_view key, std::string_view bytes) const;

 private:
  std::string folder_;
};

}  // namespace weave
