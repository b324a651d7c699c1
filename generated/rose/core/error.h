// Errors that say what is wrong, where, and what would help.

#pragma once

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rose::core {

// The kinds of failure, by what the caller can do about them.
enum class Code {
  invalid_argument,    ///< the caller asked for something that makes no sense
  not_found,           ///< a file, a model, a name that does not exist
  unsupported,         ///< understood, and not implemented
  corrupt,             ///< data that contradicts itself or its format
  out_of_range,        ///< a value beyond what this model or file allows
  resource_exhausted,  ///< memory, disk, KV pages, file handles
  io,                  ///< the operating system refused to read or write
  cancelled,           ///< somebody asked us to stop
  internal             ///< a bug of ours
};

/// The code's name as it is written here, for logs and JSON.
std::string_view name(Code code) noexcept;

// An error carries its parts separately, so that every edge can print them its own way.
class Error : public std::runtime_error {
 public:
  Error(Code code, std::string message);

  /// Names the offending argument, file or field.
  Error&& in(std::string argument) &&;
  /// Says what would help, as an instruction.
  Error&& hint(std::string text) &&;

  Code code() const noexcept;
  const std::string& message() const noexcept;
  const std::string& argument() const noexcept;  ///< empty when unknown
  const std::string& hint() const noexcept;      ///< empty when there is none

  /// Everything in one line: "argument: message (hint)".
  const char* what() const noexcept override;

 private:
  struct Parts {
    Code code;
    std::string message, argument, hint, line;
  };
  Error&& replace(Parts parts);
  std::shared_ptr<const Parts> parts_;  // shared: copying an exception must not throw
};

// What a program does with an exception that reached its edge.

/// The exit status of a program that ends because of this: 1 internal, 2 a wrong argument,
/// 3 not found, 4 corrupt, 5 unsupported, 6 the machine (disk, memory, permissions), 130 cancelled.
int exit_code(Code code) noexcept;
int exit_code(const std::exception& error) noexcept;

/// For a terminal: the message, then an indented "in:" and "help:" line where they are known.
std::string describe(const std::exception& error);

}  // namespace rose::core
