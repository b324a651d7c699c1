// Own a TCP socket.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace rose::dist {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  int descriptor() const { return descriptor_; }
  bool open() const { return descriptor_ >= 0; }
  void close();

  /// All of it, within the time; false when the other side has gone or the time is over.
  bool write_all(std::span<const std::byte> bytes, std::chrono::milliseconds time) const;
  bool read_all(std::span<std::byte> bytes, std::chrono::milliseconds time) const;
  /// As much as goes without waiting: -1 when the other side has gone, 0 when nothing goes now.
  std::ptrdiff_t write_some(std::span<const std::byte> bytes) const;
  std::ptrdiff_t read_some(std::span<std::byte> bytes) const;
  std::string peer_address() const;
  std::uint16_t port() const;

 private:
  int descriptor_ = -1;
};

/// Listens on all interfaces; port 0: any free one. Throws core::Error (io).
Socket listen_at(std::uint16_t port);
/// The next connection, or none when the time is over.
Socket accept_from(const Socket& listener, std::chrono::milliseconds time);
/// Tries until the time is over, for the other side may not listen yet. Throws core::Error (io).
Socket connect_to(const std::string& host, std::uint16_t port, std::chrono::milliseconds time);

}  // namespace rose::dist
