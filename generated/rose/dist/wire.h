// Move messages between processes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rose/core/error.h"

namespace rose::dist {

/// Where a call stands in the source.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// What a message is a part of: all processes make the same calls in the same order.
struct Call {
  std::uint64_t number = 0;
  std::string what;  ///< "all_reduce f32[1024] at loop.cpp:42"; cut to what fits into a header
};

struct Outgoing {
  int to = 0;
  std::span<const std::byte> bytes;
};
struct Incoming {
  int from = 0;
  std::span<std::byte> bytes;
};

class Wire {
 public:
  virtual ~Wire() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Sends and receives at once; at most one message to, and one from, each other process. Throws core::Error: io when a process
  /// has gone or does not come in time (named), internal when another call or another size arrives (both named), or the
  /// error that another process aborted with. After an error the wire is broken.
  virtual void transfer(const Call& call, std::span<const Outgoing> out,
                        std::span<const Incoming> in) = 0;
  /// Tells every process that this one cannot go on, and why: their next transfer throws it.
  virtual void abort(const core::Error& error) noexcept = 0;
};

/// The file's name without its folders, and the line.
std::string place(const Site& site);

}  // namespace rose::dist
