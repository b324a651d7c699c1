// Show how far a long step is.

#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace rose::core {

/// A bar that redraws itself on a terminal, and a plain line now and then in a pipe.
/// Used by one thread. Nothing is printed for work that ends within a fraction of a second.
class Progress {
 public:
  enum class Style { detect, bar, lines, none };

  /// `total` <= 0 when it is not known. `unit` is plural: "tokens", "tensors", "bytes".
  Progress(std::string title, std::int64_t total, std::string unit, std::FILE* stream = stderr,
           Style style = Style::detect);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  ///< as finish(), unless that was called; an exception leaves the bar where it was

  /// `done` so far, and a short note such as "loss 2.31". Cheap enough for every step.
  void update(std::int64_t done, std::string_view note = {});
  void finish(std::string_view note = {});

 private:
  using Clock = std::chrono::steady_clock;
  void draw(Clock::time_point now, bool last);
  std::string line(double seconds, int width) const;

  std::string title_, unit_, note_;
  std::int64_t total_, done_ = 0;
  std::FILE* stream_;
  Style style_;
  Clock::time_point start_ = Clock::now(), next_draw_;
  bool drawn_ = false, finished_ = false;
};

/// 1234567 as "1.23 M", with three significant digits.
std::string short_count(double value);
/// Seconds as "0.8 s", "42 s", "3 min 05 s" or "2 h 07 min".
std::string short_time(double seconds);

}  // namespace rose::core
