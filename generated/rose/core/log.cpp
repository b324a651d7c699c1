// spdlog behind three functions.

#include "rose/core/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

#include "rose/core/error.h"

namespace rose::core {

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::off: return spdlog::level::off;
  }
  return spdlog::level::off;
}

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("rose", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made.set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    const char* wanted = std::getenv("ROSE_LOG");
    const std::string_view text = wanted == nullptr || *wanted == '\0' ? "warning" : wanted;
    const auto level = spdlog::level::from_str(std::string(text));  // off when it is no level
    if (level == spdlog::level::off && text != "off") {
      throw Error(Code::invalid_argument, "unknown log level \"" + std::string(text) + "\"")
          .in("ROSE_LOG")
          .hint("one of debug, info, warning, error, off");
    }
    made.set_level(level);
    return made;
  }();
  return instance;
}

}  // namespace

void set_log_level(LogLevel level) {
  logger().set_level(to_spdlog(level));
}
bool log_enabled(LogLevel level) {
  return logger().should_log(to_spdlog(level));
}
void log_line(LogLevel level, std::string_view text) {
  logger().log(to_spdlog(level), text);
}

}  // namespace rose::core
