// Count what happens.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "rose/serve/answer_json.h"
#include "rose/serve/backend.h"
#include "rose/serve/http_server.h"

namespace rose::serve {

class Histogram {
 public:
  static constexpr std::array bounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,  0.25,
                                     0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0, 120.0};
  void add(double seconds, std::uint64_t times = 1);
  void write(std::string& out, std::string_view name, std::string_view help) const;

 private:
  std::array<std::uint64_t, bounds.size() + 1> counts_{};
  double sum_ = 0.0;
};

class Metrics {
 public:
  /// Tokens came `gap` seconds after the request, if they are its first, or after the tokens before.
  void token(double gap, bool first, std::size_t tokens);
  void request(int status, double seconds, const UsageSum& usage);
  void error(int status, const std::string& code);
  /// How long a request waited for its first step, and how long its prompt took from there.
  void phases(double queued, double prefill);
  /// Prometheus' text format.
  std::string page(const Backend& backend, const HttpCounts& http) const;

 private:
  mutable std::mutex mutex_;
  Histogram first_token_, next_token_, whole_, queued_, prefill_;
  std::map<int, std::uint64_t> by_status_;
  std::map<std::pair<int, std::string>, std::uint64_t> errors_;
  std::uint64_t prompt_tokens_ = 0, cached_tokens_ = 0, answer_tokens_ = 0;
};

}  // namespace rose::serve
