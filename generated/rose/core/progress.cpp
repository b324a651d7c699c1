// Draw a line for a terminal or for a log.

#include "rose/core/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <utility>

namespace rose::core {

// Say counts and times shortly.
std::string short_count(double value) {
  constexpr std::array<std::string_view, 5> suffix = {"", " k", " M", " G", " T"};
  std::size_t power = 0;
  while (std::fabs(value) >= 999.5 && power + 1 < suffix.size()) {
    value /= 1000;
    ++power;
  }
  const bool whole = power == 0 && value == std::trunc(value);
  const double size = std::fabs(value);
  const int decimals = whole || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, suffix[power]);
}

std::string short_time(double seconds) {
  if (!(seconds < 1e9)) return "a long time";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

// Draw rarely: ten times a second for eyes, every few seconds for a log.
Progress::Progress(std::string title, std::int64_t total, std::string unit, std::FILE* stream,
                   Style style)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      stream_(stream),
      style_(style),
      next_draw_(start_ + std::chrono::milliseconds(300)) {
  if (style_ == Style::detect) {
    style_ = ::isatty(::fileno(stream_)) ? Style::bar : Style::lines;
  }
}

Progress::~Progress() {
  if (finished_) return;
  if (std::uncaught_exceptions() == 0) {
    finish();
  } else if (drawn_ && style_ == Style::bar) {
    std::fputc('\n', stream_);  // the error message starts on its own line
  }
}

void Progress::update(std::int64_t done, std::string_view note) {
  done_ = done;
  note_ = note;
  const auto now = Clock::now();
  if (now < next_draw_ || style_ == Style::none) return;
  draw(now, false);
  const auto pause =
      style_ == Style::bar ? std::chrono::milliseconds(100) : std::chrono::seconds(5);
  next_draw_ = now + pause;
}

void Progress::finish(std::string_view note) {
  if (std::exchange(finished_, true)) return;
  if (!note.empty()) note_ = note;
  if (total_ > 0) done_ = total_;
  if (drawn_) draw(Clock::now(), true);
}

// One line: title, bar, share, rate, time left, note.
std::string Progress::line(double seconds, int width) const {
  const double rate = seconds > 0 ? static_cast<double>(done_) / seconds : 0;
  std::string tail =
      fmt::format("{} {}, {}/s", short_count(static_cast<double>(done_)), unit_, short_count(rate));
  if (total_ > 0 && done_ < total_ && rate > 0) {
    tail += ", " + short_time(static_cast<double>(total_ - done_) / rate) + " left";
  } else if (finished_) {
    tail += ", " + short_time(seconds);
  }
  if (!note_.empty()) tail += ", " + note_;
  if (total_ <= 0) return title_ + ": " + tail;
  const double share =
      std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  const int percent = static_cast<int>(share * 100);
  if (width == 0) return fmt::format("{}: {} %, {}", title_, percent, tail);
  const int room = width - static_cast<int>(title_.size() + tail.size()) - 12;
  const int cells = std::clamp(room, 0, 40);
  const int full = static_cast<int>(share * cells);
  return fmt::format("{} [{:=<{}}{:{}}] {:3} % {}", title_, "", full, "", cells - full, percent,
                     tail);
}

void Progress::draw(Clock::time_point now, bool last) {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  if (style_ == Style::bar) {
    winsize window{};
    const bool known = ::ioctl(::fileno(stream_), TIOCGWINSZ, &window) == 0 && window.ws_col > 20;
    const int width = known ? window.ws_col : 80;
    std::string text = line(seconds, width);
    if (text.size() >= static_cast<std::size_t>(width))
      text.resize(static_cast<std::size_t>(width) - 1);
    fmt::print(stream_, "\r\x1b[K{}{}", text, last ? "\n" : "");
  } else if (style_ == Style::lines) {
    fmt::print(stream_, "{}\n", line(seconds, 0));
  }
  std::fflush(stream_);
  drawn_ = true;
}

}  // namespace rose::core
