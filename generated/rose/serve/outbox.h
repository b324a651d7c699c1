// Write to a socket without waiting for it.

#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace rose::serve {

class Outbox {
 public:
  explicit Outbox(int socket);
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;
  ~Outbox();  ///< what is not out yet is dropped; the socket stays open

  /// Calls append(buffer) under a lock. Nothing is sent once the other side has gone.
  void put(const std::function<void(std::string&)>& append);

 private:
  void work();
  int socket_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::string waiting_;
  bool stopping_ = false, broken_ = false;
  std::thread thread_;
};

/// One read, EINTR aside. 0 at the end or after an error.
std::size_t read_some(int socket, std::string& into);

}  // namespace rose::serve
