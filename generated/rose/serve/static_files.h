// Serve a folder.

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "rose/serve/http.h"

namespace rose::serve {

class StaticFiles {
 public:
  explicit StaticFiles(const std::filesystem::path& folder);

  /// The answer to GET or HEAD of a path: 200, 206 for a range, 301 for a folder without its slash, 304 for an ETag that the client
  /// has, 416, or nothing when there is no such file.
  std::optional<HttpResponse> get(const HttpRequest& request) const;

 private:
  std::filesystem::path folder_;
};

/// "a%20b" is "a b". Nothing for a broken escape, a NUL, or bytes that are no UTF-8.
std::optional<std::string> percent_decoded(std::string_view text);

}  // namespace rose::serve
