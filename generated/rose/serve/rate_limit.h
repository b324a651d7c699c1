// Give everybody a share.

#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "rose/serve/http.h"

namespace rose::serve {

struct RateLimits {
  double requests = 0, tokens = 0;  ///< a minute; 0: any number
  bool none() const { return requests <= 0 && tokens <= 0; }
};

/// Two buckets for each client. Any thread. Times must not run backwards.
class RateLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Wait = std::optional<double>;  ///< seconds until it would be admitted; nothing: it is
  explicit RateLimiter(std::size_t most = std::size_t{1} << 16) : most_(most) {}

  Wait request(const std::string& who, RateLimits limits, Time now);
  /// Infinity: never, the prompt is too long for the bucket.
  Wait prompt(const std::string& who, RateLimits limits, std::size_t tokens, Time now);
  void answer(const std::string& who, RateLimits limits, std::int64_t tokens, Time now);
  /// What is left, in OpenAI's headers.
  Headers headers(const std::string& who, RateLimits limits, Time now);
  std::size_t size();

 private:
  struct Bucket {
    double requests = 0, tokens = 0;
    Time last;
  };
  Bucket& fill(const std::string& who, RateLimits limits, Time now);
  void forget(Time now);

  std::size_t most_;
  std::mutex mutex_;
  std::unordered_map<std::string, Bucket> buckets_;
};

/// "20ms", "1.5s", "6m0s"
std::string short_duration(double seconds);

}  // namespace rose::serve
