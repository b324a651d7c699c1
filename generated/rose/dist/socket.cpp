// Own a TCP socket.

#include "rose/dist/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "rose/core/error.h"

namespace rose::dist {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// Close once, and never wait in the system.
namespace {

int left(Clock::time_point until) {
  const auto time = std::chrono::duration_cast<Milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(time, 0, 1'000'000));
}

bool ready(int descriptor, short events, Clock::time_point until) {
  pollfd polled{descriptor, events, 0};
  while (::poll(&polled, 1, left(until)) <= 0)
    if (Clock::now() >= until) return false;
  return true;
}

/// Small messages leave at once; reads and writes never wait.
Socket prepared(Socket socket) {
  const int on = 1;
  ::setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(socket.descriptor(), F_SETFL, ::fcntl(socket.descriptor(), F_GETFL) | O_NONBLOCK);
  return socket;
}

}  // namespace

Socket::~Socket() {
  close();
}

void Socket::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

std::string Socket::peer_address() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  std::array<char, INET_ADDRSTRLEN> text{};
  if (::getpeername(descriptor_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return ::inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
}

std::uint16_t Socket::port() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

// Move bytes, all or some.
std::ptrdiff_t Socket::write_some(std::span<const std::byte> bytes) const {
  const ssize_t n = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (n >= 0) return n;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

std::ptrdiff_t Socket::read_some(std::span<std::byte> bytes) const {
  const ssize_t n = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
  if (n > 0) return n;
  if (n == 0) return -1;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

bool Socket::write_all(std::span<const std::byte> bytes, Milliseconds time) const {
  const Clock::time_point until = Clock::now() + time;
  while (!bytes.empty()) {
    const std::ptrdiff_t n = write_some(bytes);
    if (n < 0 || (n == 0 && !ready(descriptor_, POLLOUT, until))) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

bool Socket::read_all(std::span<std::byte> bytes, Milliseconds time) const {
  const Clock::time_point until = Clock::now() + time;
  while (!bytes.empty()) {
    const std::ptrdiff_t n = read_some(bytes);
    if (n < 0 || (n == 0 && !ready(descriptor_, POLLIN, until))) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

// Listen, accept, connect.
Socket listen_at(std::uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  const int failed =
      ::bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  if (failed != 0 || ::listen(socket.descriptor(), SOMAXCONN) != 0)
    throw core::Error(core::Code::io, errno == EADDRINUSE
                                          ? fmt::format("port {} is in use", port)
                                          : fmt::format("port {}: {}", port, std::strerror(errno)))
        .in("MASTER_PORT")
        .hint("another run may use it: choose another port");
  return socket;
}

Socket accept_from(const Socket& listener, Milliseconds time) {
  if (!ready(listener.descriptor(), POLLIN, Clock::now() + time)) return {};
  return prepared(Socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC)));
}

Socket connect_to(const std::string& host, std::uint16_t port, Milliseconds time) {
  const Clock::time_point until = Clock::now() + time;
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET, hints.ai_socktype = SOCK_STREAM;
  const int unknown = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const auto fail = [&](const char* why) {
    return core::Error(core::Code::io, fmt::format("no connection to {}:{}: {}", host, port, why))
        .in("MASTER_ADDR")
        .hint("is rank 0 running there, and is the port open?");
  };
  if (unknown != 0) throw fail(::gai_strerror(unknown));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  for (;;) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.descriptor(), found->ai_addr, found->ai_addrlen) == 0)
      return prepared(std::move(socket));
    if (Clock::now() >= until) throw fail(std::strerror(errno));
    constexpr Milliseconds pause{20};
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace rose::dist
