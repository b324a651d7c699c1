// Send spans to a collector.

#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rose/serve/http_client.h"
#include "rose/serve/trace.h"

namespace rose::serve {

struct ExporterOptions {
  Url endpoint;  ///< with the path, usually /v1/traces
  Headers headers{};
  std::string service = "rose", version{};
  std::size_t most_waiting = 2048, most_sent = 512;  ///< spans
  std::chrono::milliseconds delay{1000}, timeout{10'000}, first_wait{500};
  int attempts = 5;
};

/// Keeps spans until its thread has sent them.
class SpanExporter {
 public:
  explicit SpanExporter(ExporterOptions options);
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;
  ~SpanExporter();                    ///< one attempt for what waits
  void add(std::vector<Span> spans);  ///< any thread; never waits for the collector
  std::uint64_t exported() const { return exported_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  void work();
  bool send(const std::vector<Span>& spans);  ///< false: worth another attempt
  ExporterOptions options_;
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<Span> waiting_;
  bool stopping_ = false;
  std::atomic<std::uint64_t> exported_{0}, dropped_{0};
  std::thread thread_;
};

/// OTLP's environment: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, or OTEL_EXPORTER_OTLP_ENDPOINT with /v1/traces behind it;
/// OTEL_EXPORTER_OTLP_HEADERS; OTEL_SERVICE_NAME. `endpoint`, if not empty, stands for the first. Nothing: no endpoint was named.
std::optional<ExporterOptions> exporter_options(const std::string& endpoint);

}  // namespace rose::serve
