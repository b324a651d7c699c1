// Fork, join, and wait without wasting either time or power.

#include "rose/core/parallel.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "rose/core/error.h"

namespace rose::core {

namespace {

// Spin for a moment before going to sleep.
void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// True as soon as `ready` is; false when it was not for the time a wake-up costs anyway.
template <class Ready>
bool spin_until(Ready ready) noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr auto patience = std::chrono::microseconds(50);
  const auto start = Clock::now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (Clock::now() - start < patience);
  return false;
}

}  // namespace

// Count the processors that we are allowed to use.
int available_processors() {
  int count = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) count = std::max(1, CPU_COUNT(&allowed));
  std::ifstream quota("/sys/fs/cgroup/cpu.max");  // "max 100000", or microseconds per period
  double granted = 0, period = 0;
  if (quota >> granted >> period && granted > 0 && period > 0) {
    count = std::clamp(static_cast<int>(std::lround(granted / period)), 1, count);
  }
  return count;
}

ThreadPool& default_pool() {
  static ThreadPool pool([] {
    const char* wanted = std::getenv("ROSE_THREADS");
    if (wanted == nullptr || *wanted == '\0') return 0;
    const std::string_view text = wanted;
    int threads = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), threads);
    if (failed != std::errc() || end != text.data() + text.size() || threads < 1) {
      throw Error(Code::invalid_argument,
                  "must be a positive number of threads, and is \"" + std::string(text) + "\"")
          .in("ROSE_THREADS");
    }
    return threads;
  }());
  return pool;
}

// Start the workers once, and end them once.
ThreadPool::ThreadPool(int threads) {
  if (threads < 0 || threads > 4096) {
    throw Error(Code::invalid_argument, "the number of threads must be between 0 and 4096");
  }
  if (threads == 0) threads = available_processors();
  for (int i = 1; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
  try {
    for (int i = 1; i < threads; ++i) {
      Worker& worker = *workers_[static_cast<std::size_t>(i - 1)];
      worker.thread = std::thread([this, &worker, i] { work(worker, i); });
    }
  } catch (const std::system_error&) {
    end();
    throw Error(Code::resource_exhausted, "the system starts no more threads")
        .hint("ask for fewer");
  }
}

ThreadPool::~ThreadPool() {
  end();
}

void ThreadPool::end() {
  for (auto& worker : workers_) {
    if (!worker->thread.joinable()) continue;
    worker->state.store(State::stopped);
    { const std::lock_guard lock(worker->mutex); }
    worker->wake.notify_one();
    worker->thread.join();
  }
}

// Give every range the same number of grains, the first ones one more.
void ThreadPool::run_range(int range, std::exception_ptr& failure) noexcept {
  const std::int64_t grains = (job_.n - 1) / job_.grain + 1;
  const std::int64_t each = grains / job_.ranges, more = grains % job_.ranges;
  const std::int64_t first = range * each + std::min<std::int64_t>(range, more);
  const std::int64_t last = first + each + (range < more ? 1 : 0);
  try {
    job_.call(job_.body, first * job_.grain, std::min(job_.n, last * job_.grain), range);
  } catch (...) {
    failure = std::current_exception();
  }
}

// A worker waits for an offer, takes it if it still stands, and reports.
void ThreadPool::work(Worker& self, int range) {
  for (;;) {
    const auto called = [&] {
      const State state = self.state.load();
      return state == State::offered || state == State::stopped;
    };
    if (!spin_until(called)) {
      std::unique_lock lock(self.mutex);
      self.asleep.store(true);
      self.wake.wait(lock, called);
      self.asleep.store(false);
    }
    State seen = State::offered;
    if (!self.state.compare_exchange_strong(seen, State::taken)) {
      if (seen == State::stopped) return;
      continue;  // too late, the caller took it back
    }
    run_range(range, self.failure);
    self.state.store(State::idle);
    if (caller_asleep_.load()) {
      {
        const std::lock_guard lock(mutex_);
      }
      range_done_.notify_one();
    }
  }
}

// Offer the ranges, run the first one, then help or wait.
void ThreadPool::for_range(std::int64_t n, std::int64_t grain, Call call, const void* body) {
  if (n <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t grains = (n - 1) / grain + 1;
  const int ranges = static_cast<int>(std::min<std::int64_t>(grains, size()));
  if (ranges == 1 || busy_.exchange(true)) return call(body, 0, n, 0);

  job_ = Job{call, body, n, grain, ranges};
  for (int i = 1; i < ranges; ++i) {
    Worker& worker = *workers_[static_cast<std::size_t>(i - 1)];
    worker.state.store(State::offered);
    if (worker.asleep.load()) {
      {
        const std::lock_guard lock(worker.mutex);
      }
      worker.wake.notify_one();
    }
  }
  std::exception_ptr failure;
  run_range(0, failure);
  for (int i = 1; i < ranges; ++i) {
    Worker& worker = *workers_[static_cast<std::size_t>(i - 1)];
    finish_range(i, worker);
    if (!failure) failure = worker.failure;
    worker.failure = nullptr;
  }
  busy_.store(false);
  if (failure) std::rethrow_exception(failure);
}

void ThreadPool::finish_range(int range, Worker& worker) {
  State seen = State::offered;
  if (worker.state.compare_exchange_strong(seen, State::idle)) {  // nobody came: do it here
    return run_range(range, worker.failure);
  }
  const auto done = [&] { return worker.state.load() == State::idle; };
  if (spin_until(done)) return;
  std::unique_lock lock(mutex_);
  caller_asleep_.store(true);
  range_done_.wait(lock, done);
  caller_asleep_.store(false);
}

}  // namespace rose::core
