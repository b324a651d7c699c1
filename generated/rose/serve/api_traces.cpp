// Trace requests, and log them.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "rose/serve/api.h"

namespace rose::serve {

// Join a trace, or begin one.
void Api::begin_trace(Call& call) const {
  constexpr std::size_t trace_digits = 32, span_digits = 16, deciding = 13;
  if (auto given = TraceContext::parse(call.request.header("traceparent"))) {
    call.caller_span = std::move(given->span);
    call.trace = {std::move(given->trace), "", given->sampled};
  } else {
    call.trace.trace = random_hex(trace_digits);
    const std::string low = call.trace.trace.substr(trace_digits - deciding);
    const double share = static_cast<double>(std::strtoull(low.c_str(), nullptr, 16)) /
                         std::exp2(4.0 * static_cast<double>(deciding));
    call.trace.sampled = spans != nullptr && share < trace_share;
  }
  call.trace.span = random_hex(span_digits);
  if (call.trace.sampled || !call.caller_span.empty())
    call.headers.emplace_back("traceparent", call.trace.header());
}

// Make spans of what has passed.
void Api::told(const Call& call, const Passage& passage) const {
  if (spans && call.trace.sampled) end_trace(call, passage);
  if (request_log) write_line(call, passage);
}

void Api::end_trace(const Call& call, const Passage& passage) const {
  using Clock = Passage::Clock;
  const auto steady_now = Clock::now();
  const auto now = std::chrono::system_clock::now();
  const auto at = [&](Clock::time_point time) {
    return now - std::chrono::duration_cast<Span::Time::duration>(steady_now - time);
  };
  std::vector<Span> out;
  const auto add = [&](const char* name, Clock::time_point begin, Clock::time_point end) {
    constexpr std::size_t digits = 16;
    out.push_back({.trace = call.trace.trace,
                   .id = random_hex(digits),
                   .parent = call.trace.span,
                   .name = name,
                   .begin = at(begin),
                   .end = at(std::max(begin, end))});
  };
  out.push_back({.trace = call.trace.trace,
                 .id = call.trace.span,
                 .parent = call.caller_span,
                 .name = call.request.method + " " + call.request.path,
                 .kind = Span::Kind::server,
                 .begin = at(call.arrived),
                 .end = now});
  Span& whole = out.back();
  constexpr int failing = 500;
  if (passage.status >= failing) whole.error = passage.code.empty() ? "error" : passage.code;
  whole.attributes = {{"http.request.method", call.request.method},
                      {"url.path", call.request.path},
                      {"http.response.status_code", passage.status},
                      {"rose.request.id", call.id}};
  if (!passage.code.empty()) whole.attributes["error.type"] = passage.code;
  if (!passage.model.empty()) whole.attributes["gen_ai.request.model"] = passage.model;
  if (passage.usage.prompt > 0) {
    whole.attributes["gen_ai.usage.input_tokens"] = passage.usage.prompt;
    whole.attributes["gen_ai.usage.output_tokens"] = passage.usage.completion;
    whole.attributes["rose.usage.cached_tokens"] = passage.usage.cached;
  }
  if (!passage.finish.empty()) whole.attributes["gen_ai.response.finish_reason"] = passage.finish;
  if (passage.accepted) {
    const auto begun = *passage.accepted + std::chrono::microseconds(passage.queued_us);
    const auto first = passage.first_token.value_or(steady_now);
    add("queue", *passage.accepted, std::min(begun, first));
    add("prefill", std::min(begun, first), first);
    if (passage.first_token) add("decode", first, steady_now);
  }
  spans->add(std::move(out));
}

// Make a line of what has passed.
void Api::write_line(const Call& call, const Passage& passage) const {
  const auto now = Passage::Clock::now();
  const auto since = [&](Passage::Clock::time_point begin, Passage::Clock::time_point end) {
    constexpr double thousandth = 1e-3;
    return std::round(std::chrono::duration<double, std::milli>(end - begin).count() / thousandth) *
           thousandth;
  };
  const auto wall = std::chrono::system_clock::now();
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(wall.time_since_epoch()).count() % 1000;
  json::object line{
      {"time", fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03d}Z",
                           fmt::gmtime(std::chrono::system_clock::to_time_t(wall)), millis)},
      {"request", call.id},
      {"trace", call.trace.trace},
      {"method", call.request.method},
      {"path", call.request.path},
      {"peer", call.request.peer},
      {"status", passage.status},
      {"ms", since(call.arrived, now)}};
  if (call.key != nullptr && !call.key->name.empty()) line["key"] = call.key->name;
  if (!passage.code.empty()) line["code"] = passage.code;
  if (!passage.model.empty()) line["model"] = passage.model;
  if (!passage.finish.empty()) line["finish"] = passage.finish;
  if (passage.usage.prompt > 0) {
    line["prompt_tokens"] = passage.usage.prompt;
    line["cached_tokens"] = passage.usage.cached;
    line["answer_tokens"] = passage.usage.completion;
  }
  if (passage.accepted) line["queue_ms"] = static_cast<double>(passage.queued_us) / 1e3;
  if (passage.first_token) line["first_token_ms"] = since(call.arrived, *passage.first_token);
  request_log->write(line);
}

}  // namespace rose::serve
