// Threads for work that must not block the network.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rose::serve {

class WorkPool {
 public:
  WorkPool(int threads, std::size_t most_waiting);
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;
  ~WorkPool();                                ///< stops
  void stop();                                ///< what is waiting is done first
  bool try_post(std::function<void()> work);  ///< false: too much is waiting
  void post(std::function<void()> work);      ///< always

 private:
  void run();
  std::size_t most_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::function<void()>> waiting_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rose::serve
