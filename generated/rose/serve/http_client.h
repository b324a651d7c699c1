// Ask another server.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "rose/serve/http.h"

namespace rose::serve {

struct Url {
  bool tls = false;
  std::string host, target;  ///< path and query: at least "/"
  std::uint16_t port = 0;

  /// Throws core::Error (invalid_argument) unless it is http or https with a host, and without a user.
  static Url parse(std::string_view text);
  /// What a header `Location` means that was found here.
  Url follow(std::string_view location) const;
  std::string authority() const;  ///< host, and port if it is not the usual one
  std::string text() const;
};

/// What is asked, and how patiently.
struct FetchOptions {
  std::string method = "GET", body{};
  Headers headers{};
  std::chrono::milliseconds timeout{30'000};  ///< without a byte
  int redirects = 0;  ///< that are followed; secrets stay with the first host
};

/// What came back.
struct Fetched {
  int status = 0;
  Headers headers;   ///< names in lower case
  std::string body;  ///< empty if there was a sink
  Url url;           ///< where it was found in the end
  std::string_view header(std::string_view name) const;
};

/// Is told the head before the first piece, and each piece of the body; false: enough.
struct Sink {
  std::function<bool(const Fetched& head)> begin;
  std::function<bool(std::string_view piece)> piece;
};

/// Throws core::Error (io) if nothing, or not everything, came. Any status is an answer. Only a status of 200 or 206 has a sink's body.
Fetched fetch(const Url& url, const FetchOptions& options = {}, const Sink* sink = nullptr);

}  // namespace rose::serve
