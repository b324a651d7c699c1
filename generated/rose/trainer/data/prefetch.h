// Fill batches on a thread.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "rose/trainer/data/loader.h"

namespace rose::trainer {

class Prefetcher {
 public:
  Prefetcher(Loader loader, std::int64_t rows, std::int64_t context, int depth = 2);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();

  /// The next batch, swapped into `out`. Rethrows what the loader threw.
  void next(MicroBatchBuffer& out);
  /// After the last batch that next() gave: what a checkpoint holds.
  core::json::value position() const { return position_; }
  void restore(const core::json::value& position);
  /// Seconds that next() has waited for a batch, the first one after a (re)start left out.
  double stalled_seconds() const { return stalled_; }

 private:
  struct Filled {
    MicroBatchBuffer batch;
    core::json::value after;
    std::exception_ptr failure;
  };
  void start();
  void stop();
  void fill();

  Loader loader_;
  std::int64_t rows_, context_;
  std::size_t depth_;
  core::json::value position_;
  double stalled_ = 0;
  bool first_ = true;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Filled> filled_;
  std::deque<MicroBatchBuffer> spare_;  // memory to fill again
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rose::trainer
