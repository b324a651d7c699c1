// Write to a socket without waiting for it.

#include "rose/serve/outbox.h"

#include <sys/socket.h>

#include <cerrno>

namespace rose::serve {

Outbox::Outbox(int socket) : socket_(socket), thread_([this] { work(); }) {}

Outbox::~Outbox() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    filled_.notify_one();
  }
  ::shutdown(socket_, SHUT_RDWR);  // ends a send that waits
  thread_.join();
}

void Outbox::put(const std::function<void(std::string&)>& append) {
  const std::scoped_lock lock(mutex_);
  if (broken_) return;
  append(waiting_);
  filled_.notify_one();
}

void Outbox::work() {
  std::string sending;
  std::unique_lock lock(mutex_);
  while (true) {
    filled_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    sending.clear();
    sending.swap(waiting_);
    lock.unlock();
    bool failed = false;
    for (std::size_t sent = 0; sent < sending.size() && !failed;) {
      const ssize_t n = ::send(socket_, sending.data() + sent, sending.size() - sent, MSG_NOSIGNAL);
      if (n > 0)
        sent += static_cast<std::size_t>(n);
      else
        failed = n == 0 || errno != EINTR;
    }
    lock.lock();
    if (failed) {
      broken_ = true;
      waiting_.clear();
    }
  }
}

std::size_t read_some(int socket, std::string& into) {
  constexpr std::size_t piece = std::size_t{64} << 10;
  into.resize(piece);
  ssize_t n = 0;
  do {
    n = ::recv(socket, into.data(), into.size(), 0);
  } while (n < 0 && errno == EINTR);
  into.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return into.size();
}

}  // namespace rose::serve
