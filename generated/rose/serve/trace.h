// Know where a request belongs.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/core/json.h"

namespace rose::serve {

/// What a `traceparent` says.
struct TraceContext {
  std::string trace, span;  ///< 32 and 16 lower-case hexadecimal digits
  bool sampled = false;     ///< somebody records it
  /// Nothing for what the recommendation calls invalid.
  static std::optional<TraceContext> parse(std::string_view header);
  std::string header() const;
};

/// Random ids that are not zero.
std::string random_hex(std::size_t digits);

/// Something that took time, in a trace.
struct Span {
  using Time = std::chrono::system_clock::time_point;
  enum class Kind : std::uint8_t { internal = 1, server = 2 };
  std::string trace, id, parent{};
  std::string name;
  Kind kind = Kind::internal;
  Time begin{}, end{};
  core::json::object attributes{};
  std::string error{};  ///< not empty: it failed
};

/// One request's body in OTLP's JSON: the spans of one service.
std::string otlp_json(const std::vector<Span>& spans, std::string_view service,
                      std::string_view version);

}  // namespace rose::serve
