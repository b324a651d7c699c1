// Hold clients to their limits.

#include <fmt/format.h>

#include <cmath>

#include "rose/serve/api.h"

namespace rose::serve {
namespace {

ApiError rate_limited(const char* kind, double limit, double wait) {
  const bool never = std::isinf(wait);
  ApiError out(429,
               never ? fmt::format("Request too large for {} per min: limit {:.0f}. It can never "
                                   "be admitted.",
                                   kind, limit)
                     : fmt::format("Rate limit reached for {} per min: limit {:.0f}. Please try "
                                   "again in {}.",
                                   kind, limit, short_duration(wait)),
               kind, "", "rate_limit_exceeded");
  if (!never) out.retry_after = static_cast<int>(std::max(1.0, std::ceil(wait)));
  return out;
}

}  // namespace

RateLimits Api::limits_of(const Call& call) const {
  RateLimits out{options_.requests, options_.tokens};
  if (call.key != nullptr && call.key->requests > 0) out.requests = call.key->requests;
  if (call.key != nullptr && call.key->tokens > 0) out.tokens = call.key->tokens;
  return out;
}

const std::string& Api::caller(const Call& call) {
  return call.key != nullptr ? call.key->hash : call.request.peer;
}

void Api::show_limits(Call& call, RateLimits limits) {
  std::erase_if(call.headers,
                [](const auto& header) { return header.first.starts_with("x-ratelimit-"); });
  const Headers left = limiter_.headers(caller(call), limits, RateLimiter::Time::clock::now());
  call.headers.insert(call.headers.end(), left.begin(), left.end());
}

void Api::count_request(Call& call) {
  const RateLimits limits = limits_of(call);
  if (limits.none()) return;
  const auto wait = limiter_.request(caller(call), limits, RateLimiter::Time::clock::now());
  show_limits(call, limits);
  if (wait) throw rate_limited("requests", limits.requests, *wait);
}

void Api::count_prompt(Call& call, std::size_t tokens) {
  const RateLimits limits = limits_of(call);
  if (limits.none()) return;
  const auto wait = limiter_.prompt(caller(call), limits, tokens, RateLimiter::Time::clock::now());
  show_limits(call, limits);
  if (wait) throw rate_limited("tokens", limits.tokens, *wait);
}

void Api::count_answer(const Call& call, std::int64_t tokens) {
  limiter_.answer(caller(call), limits_of(call), tokens, RateLimiter::Time::clock::now());
}

}  // namespace rose::serve
