// The parts of an error and its three renderings.

#include "rose/core/error.h"

#include <ios>
#include <new>
#include <system_error>
#include <utility>

namespace rose::core {

// Rebuild the one line whenever a part is added.
Error::Error(Code code, std::string message) : std::runtime_error("") {
  replace(Parts{code, std::move(message), {}, {}, {}});
}

Error&& Error::replace(Parts parts) {
  parts.line = parts.argument.empty() ? parts.message : parts.argument + ": " + parts.message;
  if (!parts.hint.empty()) parts.line += " (" + parts.hint + ")";
  parts_ = std::make_shared<const Parts>(std::move(parts));
  return std::move(*this);
}

Error&& Error::in(std::string argument) && {
  Parts parts = *parts_;
  parts.argument = std::move(argument);
  return replace(std::move(parts));
}

Error&& Error::hint(std::string text) && {
  Parts parts = *parts_;
  parts.hint = std::move(text);
  return replace(std::move(parts));
}

Code Error::code() const noexcept {
  return parts_->code;
}
const std::string& Error::message() const noexcept {
  return parts_->message;
}
const std::string& Error::argument() const noexcept {
  return parts_->argument;
}
const std::string& Error::hint() const noexcept {
  return parts_->hint;
}
const char* Error::what() const noexcept {
  return parts_->line.c_str();
}

// Map the kinds to names and to exit codes.
std::string_view name(Code code) noexcept {
  switch (code) {
    case Code::invalid_argument: return "invalid_argument";
    case Code::not_found: return "not_found";
    case Code::unsupported: return "unsupported";
    case Code::corrupt: return "corrupt";
    case Code::out_of_range: return "out_of_range";
    case Code::resource_exhausted: return "resource_exhausted";
    case Code::io: return "io";
    case Code::cancelled: return "cancelled";
    case Code::internal: return "internal";
  }
  return "internal";
}

int exit_code(Code code) noexcept {
  switch (code) {
    case Code::invalid_argument:
    case Code::out_of_range: return 2;
    case Code::not_found: return 3;
    case Code::corrupt: return 4;
    case Code::unsupported: return 5;
    case Code::io:
    case Code::resource_exhausted: return 6;
    case Code::cancelled: return 130;  // 128 + SIGINT, what a shell expects
    case Code::internal: return 1;
  }
  return 1;
}

// Treat other people's exceptions as well as our own.
int exit_code(const std::exception& error) noexcept {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return exit_code(ours->code());
  if (dynamic_cast<const std::bad_alloc*>(&error)) return exit_code(Code::resource_exhausted);
  if (dynamic_cast<const std::system_error*>(&error)) return exit_code(Code::io);
  return exit_code(Code::internal);
}

std::string describe(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) {
    std::string text = ours->message();
    if (!ours->argument().empty()) text += "\n  in: " + ours->argument();
    if (!ours->hint().empty()) text += "\n  help: " + ours->hint();
    return text;
  }
  if (dynamic_cast<const std::bad_alloc*>(&error)) {
    return "out of memory\n  help: use a smaller model, a shorter context or fewer requests at "
           "once";
  }
  return error.what();
}

}  // namespace rose::core
