// Count what happens.

#include "rose/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace rose::serve {

void Histogram::add(double seconds, std::uint64_t times) {
  const auto at = std::ranges::lower_bound(bounds, seconds) - bounds.begin();
  counts_.at(static_cast<std::size_t>(at)) += times;
  sum_ += seconds * static_cast<double>(times);
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help) const {
  out += fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    below += counts_[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds[i], below);
  }
  below += counts_.back();
  out +=
      fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, below, sum_);
}

void Metrics::token(double gap, bool first, std::size_t tokens) {
  const std::scoped_lock lock(mutex_);
  if (first)
    first_token_.add(gap);
  else
    next_token_.add(gap / static_cast<double>(tokens), tokens);
}

void Metrics::request(int status, double seconds, const UsageSum& usage) {
  const std::scoped_lock lock(mutex_);
  ++by_status_[status];
  prompt_tokens_ += static_cast<std::uint64_t>(usage.prompt);
  cached_tokens_ += static_cast<std::uint64_t>(usage.cached);
  answer_tokens_ += static_cast<std::uint64_t>(usage.completion);
  constexpr int ok = 200;
  if (status == ok) whole_.add(seconds);
}

void Metrics::error(int status, const std::string& code) {
  const std::scoped_lock lock(mutex_);
  ++errors_[{status, code}];
}

void Metrics::phases(double queued, double prefill) {
  const std::scoped_lock lock(mutex_);
  queued_.add(queued);
  prefill_.add(std::max(prefill, 0.0));
}

// Write the page.
std::string Metrics::page(const Backend& backend, const HttpCounts& http) const {
  const infer::Statistics s = backend.statistics();
  const auto facts = backend.facts();
  std::string out;
  const auto one = [&](std::string_view kind, std::string_view name, std::string_view help,
                       auto value) {
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, kind, value);
  };
  one("gauge", "rose_engine_up", "Engines that are ready", backend.ready());
  one("counter", "rose_engine_restarts_total", "Engines started after the first",
      backend.restarts());
  one("gauge", "rose_requests_running", "Requests in the batch", s.running);
  one("gauge", "rose_requests_waiting", "Requests in the queue", s.waiting);
  one("counter", "rose_preemptions_total", "Requests put back for want of pages", s.preemptions);
  one("counter", "rose_steps_total", "Steps of the engine", s.steps);
  one("gauge", "rose_kv_pages", "Pages of keys and values", facts ? facts->pages : 0);
  one("gauge", "rose_kv_pages_referenced", "Pages that running requests hold", s.pages.referenced);
  one("gauge", "rose_kv_pages_cached", "Pages that hold known prefixes", s.pages.cached);
  one("counter", "rose_prefix_tokens_asked_total", "Prompt tokens looked up",
      s.prefix.tokens_asked);
  one("counter", "rose_prefix_tokens_found_total", "Prompt tokens found computed",
      s.prefix.tokens_found);
  one("gauge", "rose_connections", "Open connections", http.open);
  one("counter", "rose_connections_total", "Connections accepted", http.accepted);
  one("counter", "rose_connections_refused_total", "Connections beyond the limit", http.refused);
  one("counter", "rose_connections_cut_total", "Connections whose client did not read", http.cut);
  one("counter", "rose_malformed_total", "Requests that were no HTTP, too large or too slow",
      http.malformed);
  const std::scoped_lock lock(mutex_);
  one("counter", "rose_prompt_tokens_total", "Tokens of prompts that were answered",
      prompt_tokens_);
  one("counter", "rose_cached_tokens_total", "Of them, found in the prefix cache", cached_tokens_);
  one("counter", "rose_answer_tokens_total", "Tokens generated", answer_tokens_);
  out +=
      "# HELP rose_requests_total Generation requests by status\n# TYPE rose_requests_total "
      "counter\n";
  for (const auto& [status, n] : by_status_)
    out += fmt::format("rose_requests_total{{status=\"{}\"}} {}\n", status, n);
  out +=
      "# HELP rose_errors_total Refusals and failures by status and code\n# TYPE rose_errors_total "
      "counter\n";
  for (const auto& [error, n] : errors_)
    out += fmt::format("rose_errors_total{{status=\"{}\",code=\"{}\"}} {}\n", error.first,
                       error.second, n);
  queued_.write(out, "rose_queue_seconds", "From a request's acceptance to its first step");
  prefill_.write(out, "rose_prefill_seconds", "From a request's first step to its first token");
  first_token_.write(out, "rose_time_to_first_token_seconds",
                     "From the request to its first token");
  next_token_.write(out, "rose_inter_token_seconds", "From a token to the next");
  whole_.write(out, "rose_request_seconds", "From the request to the end of its answer");
  return out;
}

}  // namespace rose::serve
