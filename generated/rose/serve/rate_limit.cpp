// Give everybody a share.

#include "rose/serve/rate_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace rose::serve {

constexpr double minute = 60.0;

RateLimiter::Bucket& RateLimiter::fill(const std::string& who, RateLimits limits, Time now) {
  if (buckets_.size() >= most_ && !buckets_.contains(who)) forget(now);
  const auto [at, fresh] = buckets_.try_emplace(who, limits.requests, limits.tokens, now);
  Bucket& bucket = at->second;
  const double minutes =
      std::max(0.0, std::chrono::duration<double>(now - bucket.last).count() / minute);
  bucket.requests = std::min(limits.requests, bucket.requests + minutes * limits.requests);
  bucket.tokens = std::min(limits.tokens, bucket.tokens + minutes * limits.tokens);
  bucket.last = std::max(bucket.last, now);
  return bucket;
}

void RateLimiter::forget(Time now) {
  // A debt of more than a minute is paid in more than a minute; ten are enough for all but a few answers of great length.
  constexpr std::chrono::minutes surely_full{10};
  std::erase_if(buckets_, [&](const auto& one) { return now - one.second.last > surely_full; });
  if (buckets_.size() >= most_) buckets_.erase(buckets_.begin());
}

RateLimiter::Wait RateLimiter::request(const std::string& who, RateLimits limits, Time now) {
  const std::scoped_lock lock(mutex_);
  if (limits.requests <= 0) return std::nullopt;
  Bucket& bucket = fill(who, limits, now);
  if (bucket.requests < 1.0) return (1.0 - bucket.requests) / limits.requests * minute;
  bucket.requests -= 1.0;
  return std::nullopt;
}

RateLimiter::Wait RateLimiter::prompt(const std::string& who, RateLimits limits, std::size_t tokens,
                                      Time now) {
  const std::scoped_lock lock(mutex_);
  if (limits.tokens <= 0) return std::nullopt;
  const auto wanted = static_cast<double>(tokens);
  if (wanted > limits.tokens) return std::numeric_limits<double>::infinity();
  Bucket& bucket = fill(who, limits, now);
  if (bucket.tokens < wanted) return (wanted - bucket.tokens) / limits.tokens * minute;
  bucket.tokens -= wanted;
  return std::nullopt;
}

void RateLimiter::answer(const std::string& who, RateLimits limits, std::int64_t tokens, Time now) {
  const std::scoped_lock lock(mutex_);
  if (limits.tokens > 0) fill(who, limits, now).tokens -= static_cast<double>(tokens);
}

Headers RateLimiter::headers(const std::string& who, RateLimits limits, Time now) {
  const std::scoped_lock lock(mutex_);
  const Bucket bucket = fill(who, limits, now);
  Headers out;
  const auto add = [&](const char* kind, double limit, double left) {
    if (limit <= 0) return;
    out.emplace_back(fmt::format("x-ratelimit-limit-{}", kind), fmt::format("{:.0f}", limit));
    out.emplace_back(fmt::format("x-ratelimit-remaining-{}", kind),
                     fmt::format("{:.0f}", std::max(0.0, std::floor(left))));
    out.emplace_back(fmt::format("x-ratelimit-reset-{}", kind),
                     short_duration((limit - left) / limit * minute));
  };
  add("requests", limits.requests, bucket.requests);
  add("tokens", limits.tokens, bucket.tokens);
  return out;
}

std::size_t RateLimiter::size() {
  const std::scoped_lock lock(mutex_);
  return buckets_.size();
}

std::string short_duration(double seconds) {
  constexpr double milli = 1000.0;
  if (seconds < 1.0) return fmt::format("{:.0f}ms", std::ceil(seconds * milli));
  if (seconds < minute) return fmt::format("{:.3g}s", seconds);
  const double whole = std::ceil(seconds);
  return fmt::format("{:.0f}m{:.0f}s", std::floor(whole / minute), std::fmod(whole, minute));
}

}  // namespace rose::serve
