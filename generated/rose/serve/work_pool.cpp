// Threads for work that must not block the network.

#include "rose/serve/work_pool.h"

#include <utility>

namespace rose::serve {

WorkPool::WorkPool(int threads, std::size_t most_waiting) : most_(most_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

WorkPool::~WorkPool() {
  stop();
}

void WorkPool::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    filled_.notify_all();
  }
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

bool WorkPool::try_post(std::function<void()> work) {
  const std::scoped_lock lock(mutex_);
  if (waiting_.size() >= most_) return false;
  waiting_.push_back(std::move(work));
  filled_.notify_one();
  return true;
}

void WorkPool::post(std::function<void()> work) {
  const std::scoped_lock lock(mutex_);
  waiting_.push_back(std::move(work));
  filled_.notify_one();
}

void WorkPool::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    filled_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace rose::serve
