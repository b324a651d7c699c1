// Log lines on standard error.

#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

namespace rose::core {

enum class LogLevel { debug, info, warning, error, off };

/// The level is ROSE_LOG (debug, info, warning, error, off) or warning, until it is set here.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
void log_line(LogLevel level, std::string_view text);

/// Formats only when somebody listens: log(LogLevel::info, "loaded {} tensors", n).
template <class... Args>
void log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(level)) log_line(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace rose::core
