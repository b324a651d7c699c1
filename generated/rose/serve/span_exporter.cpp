// Send spans to a collector.

#include "rose/serve/span_exporter.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>

#include "rose/core/error.h"
#include "rose/core/log.h"

namespace rose::serve {

// Take spans in.
SpanExporter::SpanExporter(ExporterOptions options)
    : options_(std::move(options)), thread_([this] { work(); }) {}

SpanExporter::~SpanExporter() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    filled_.notify_all();
  }
  thread_.join();
}

void SpanExporter::add(std::vector<Span> spans) {
  const std::scoped_lock lock(mutex_);
  const std::size_t room = options_.most_waiting - std::min(options_.most_waiting, waiting_.size());
  const std::size_t taken = std::min(room, spans.size());
  std::move(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(taken),
            std::back_inserter(waiting_));
  dropped_ += spans.size() - taken;
  if (waiting_.size() >= options_.most_sent) filled_.notify_all();
}

// Send them, again if it may help.
bool SpanExporter::send(const std::vector<Span>& spans) {
  FetchOptions ask{.method = "POST",
                   .body = otlp_json(spans, options_.service, options_.version),
                   .headers = options_.headers,
                   .timeout = options_.timeout};
  ask.headers.emplace_back("content-type", "application/json");
  try {
    const Fetched answer = fetch(options_.endpoint, ask);
    constexpr std::array passing{429, 502, 503, 504};
    if (std::ranges::find(passing, answer.status) != passing.end()) return false;
    constexpr int good = 2, hundred = 100;
    if (answer.status / hundred == good) {
      exported_ += spans.size();
    } else {
      dropped_ += spans.size();
      core::log(core::LogLevel::warning, "{} refused spans with status {}",
                options_.endpoint.text(), answer.status);
    }
    return true;
  } catch (const core::Error&) {
    return false;
  }
}

void SpanExporter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    filled_.wait_for(lock, options_.delay,
                     [&] { return stopping_ || waiting_.size() >= options_.most_sent; });
    if (waiting_.empty() && stopping_) return;
    if (waiting_.empty()) continue;
    std::vector<Span> batch;
    const std::size_t n = std::min(options_.most_sent, waiting_.size());
    std::move(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(n),
              std::back_inserter(batch));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(n));
    auto wait = options_.first_wait;
    for (int left = options_.attempts;; wait *= 2) {
      lock.unlock();
      const bool done = send(batch);
      lock.lock();
      if (done) break;
      if (stopping_ || --left == 0) {
        dropped_ += batch.size();
        break;
      }
      filled_.wait_for(lock, wait, [&] { return stopping_; });
    }
  }
}

// Read the environment.
std::optional<ExporterOptions> exporter_options(const std::string& endpoint) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  std::string url = endpoint;
  if (url.empty()) url = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
  if (std::string base = variable("OTEL_EXPORTER_OTLP_ENDPOINT"); url.empty() && !base.empty()) {
    while (base.ends_with('/')) base.pop_back();
    url = base + "/v1/traces";
  }
  if (url.empty()) return std::nullopt;
  ExporterOptions out{.endpoint = Url::parse(url), .version = ROSE_VERSION};
  if (const std::string name = variable("OTEL_SERVICE_NAME"); !name.empty()) out.service = name;
  const std::string headers = variable("OTEL_EXPORTER_OTLP_HEADERS");
  for (std::size_t at = 0; at < headers.size();) {
    const std::size_t end = std::min(headers.find(',', at), headers.size());
    const std::string one = headers.substr(at, end - at);
    const std::size_t equals = one.find('=');
    if (equals != std::string::npos)
      out.headers.emplace_back(one.substr(0, equals), one.substr(equals + 1));
    at = end + 1;
  }
  return out;
}

}  // namespace rose::serve
