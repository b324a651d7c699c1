// Split a loop over the cores.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace rose::core {

/// The number of processors this process may use: its affinity mask, cut by a container's quota.
int available_processors();

// A fixed set of threads that run one loop at a time.
class ThreadPool {
 public:
  /// `threads` counts the caller; 0 means available_processors().
  explicit ThreadPool(int threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  /// Calls f(begin, end) on disjoint ranges that cover [0, n), at most size() of them, cut at
  /// multiples of `grain`, and returns when all are done. f may take a third argument, the index
  /// in [0, size()) of the range, for scratch memory. The ranges are a function of n, grain and
  /// size() alone. A pool that is busy (a nested call, another thread) runs f(0, n) on the caller.
  /// Of several exceptions the one from the lowest range is rethrown, after all have ended.
  template <class F>
  void for_range(std::int64_t n, std::int64_t grain, F&& f) {
    using Body = std::remove_reference_t<F>;
    const Call call = [](const void* body, std::int64_t begin, std::int64_t end, int range) {
      auto& run = *static_cast<Body*>(const_cast<void*>(body));
      if constexpr (std::is_invocable_v<Body&, std::int64_t, std::int64_t, int>) {
        run(begin, end, range);
      } else {
        run(begin, end);
      }
    };
    for_range(n, grain, call, std::addressof(f));
  }

 private:
  using Call = void (*)(const void* body, std::int64_t begin, std::int64_t end, int range);
  // One job, and per worker the state of its range.
  struct Job {
    Call call = nullptr;
    const void* body = nullptr;
    std::int64_t n = 0, grain = 1;
    int ranges = 0;
  };
  enum class State : std::uint8_t { idle, offered, taken, stopped };
  struct alignas(64) Worker {  // one cache line each: a spinning worker reads only its own
    std::atomic<State> state{State::idle};
    std::atomic<bool> asleep{false};
    std::exception_ptr failure;
    std::mutex mutex;
    std::condition_variable wake;
    std::thread thread;
  };

  void for_range(std::int64_t n, std::int64_t grain, Call call, const void* body);
  void run_range(int range, std::exception_ptr& failure) noexcept;
  void work(Worker& self, int range);
  void finish_range(int range, Worker& worker);
  void end();

  Job job_;                        // changes only while every worker is idle
  std::atomic<bool> busy_{false};  // owned by one caller at a time
  std::atomic<bool> caller_asleep_{false};
  std::mutex mutex_;
  std::condition_variable range_done_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

/// The pool of the process: ROSE_THREADS threads when that is set, else available_processors().
ThreadPool& default_pool();

}  // namespace rose::core
