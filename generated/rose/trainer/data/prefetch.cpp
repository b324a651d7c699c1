// One thread fills, one empties.

#include "rose/trainer/data/prefetch.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace rose::trainer {

Prefetcher::Prefetcher(Loader loader, std::int64_t rows, std::int64_t context, int depth)
    : loader_(std::move(loader)),
      rows_(rows),
      context_(context),
      depth_(static_cast<std::size_t>(std::max(depth, 1))),
      position_(loader_.position()) {
  start();
}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::start() {
  stopping_ = false;
  first_ = true;
  thread_ = std::thread([this] { fill(); });
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  filled_.clear();
}

void Prefetcher::restore(const core::json::value& position) {
  stop();
  loader_.restore(position);
  position_ = position;
  start();
}

// Fill until there are enough.
void Prefetcher::fill() {
  for (;;) {
    Filled next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || filled_.size() < depth_; });
      if (stopping_) return;
      if (!spare_.empty()) {
        next.batch = std::move(spare_.front());
        spare_.pop_front();
      }
    }
    try {
      loader_.next(rows_, context_, next.batch);
      next.after = loader_.position();
    } catch (...) {
      next.failure = std::current_exception();
    }
    const bool failed = next.failure != nullptr;
    {
      const std::lock_guard lock(mutex_);
      filled_.push_back(std::move(next));
    }
    changed_.notify_all();
    if (failed) return;
  }
}

// Take the oldest.
void Prefetcher::next(MicroBatchBuffer& out) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::unique_lock lock(mutex_);
  const bool waits = filled_.empty();
  changed_.wait(lock, [this] { return !filled_.empty(); });
  if (waits && !first_) stalled_ += std::chrono::duration<double>(Clock::now() - start).count();
  first_ = false;
  if (filled_.front().failure) std::rethrow_exception(filled_.front().failure);  // every time
  std::swap(out, filled_.front().batch);
  position_ = std::move(filled_.front().after);
  spare_.push_back(std::move(filled_.front().batch));
  filled_.pop_front();
  lock.unlock();
  changed_.notify_all();
}

}  // namespace rose::trainer
