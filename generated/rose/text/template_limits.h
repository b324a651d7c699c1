// Bound what a template may cost, and say what it did wrong.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "rose/core/error.h"

namespace rose::text {

// Bound what a template may cost.
struct Limits {
  std::uint64_t steps = 5'000'000;        ///< expressions, statements and loop items evaluated
  std::size_t output_bytes = 32u << 20;   ///< longest string, the result included
  std::uint64_t work_bytes = 1ull << 30;  ///< bytes read and written by string operations
  int depth = 1000;                       ///< evaluations inside one another
};

namespace jinja {

inline constexpr int kDataNesting =
    200;  ///< lists in lists; Python's own parser stops at 200 brackets

// Throw a failure that does not know yet where it happened.
struct Failure {
  core::Code code;
  std::string message;
  std::string hint;
};

[[noreturn]] inline void fail(std::string message, std::string hint = {}) {
  throw Failure{core::Code::invalid_argument, std::move(message), std::move(hint)};
}

// Count steps and bytes, and stop at the limit.
class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}

  void step(std::uint64_t n = 1) {
    steps_ += n;
    if (steps_ > limits_.steps) {
      over("the template ran for more than " + std::to_string(limits_.steps) + " steps");
    }
  }

  /// Charges for `bytes` that an operation reads or makes.
  void work(std::uint64_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limits_.work_bytes) {
      over("the template moved more than " + std::to_string(limits_.work_bytes) + " bytes");
    }
  }

  /// Refuses a string longer than the limit *before* it is made, and charges for it.
  void will_make(std::uint64_t bytes) {
    if (bytes > limits_.output_bytes) {
      over("the template makes a text of more than " + std::to_string(limits_.output_bytes) +
           " bytes");
    }
    work(bytes);
  }

  const Limits& limits() const { return limits_; }

 private:
  [[noreturn]] static void over(std::string message) {
    throw Failure{core::Code::resource_exhausted, std::move(message),
                  "does a loop or a macro of the template never end? The limits are an argument"};
  }

  Limits limits_;
  std::uint64_t steps_ = 0;
  std::uint64_t bytes_ = 0;
};

// Build a string that cannot outgrow the limit.
class Writer {
 public:
  explicit Writer(Meter& meter) : meter_(&meter) {}

  Writer& operator<<(std::string_view text) {
    if (text.size() > meter_->limits().output_bytes - out_.size()) {
      meter_->will_make(out_.size() + text.size());
    }
    meter_->work(text.size());
    out_ += text;
    return *this;
  }

  std::size_t size() const { return out_.size(); }
  std::string take() { return std::move(out_); }

 private:
  Meter* meter_;
  std::string out_;
};

}  // namespace jinja
}  // namespace rose::text
