// Know where a request belongs.

#include "rose/serve/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace rose::serve {

namespace json = core::json;

// Read and write the header.
namespace {

bool hex(std::string_view digits) {
  return std::ranges::all_of(
      digits, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool zero(std::string_view digits) {
  return std::ranges::all_of(digits, [](char c) { return c == '0'; });
}

}  // namespace

std::optional<TraceContext> TraceContext::parse(std::string_view header) {
  constexpr std::size_t version = 2, trace = 32, span = 16, flags = 2;
  constexpr std::size_t whole = version + trace + span + flags + 3;
  if (header.size() < whole) return std::nullopt;
  const bool first = header.starts_with("00");
  if (header.starts_with("ff") || (first && header.size() != whole) ||
      (header.size() > whole && header[whole] != '-'))
    return std::nullopt;
  std::size_t at = 0;
  std::vector<std::string_view> fields;
  for (const std::size_t digits : {version, trace, span, flags}) {
    if (at > 0 && header[at++] != '-') return std::nullopt;
    fields.push_back(header.substr(at, digits));
    if (!hex(fields.back())) return std::nullopt;
    at += digits;
  }
  if (zero(fields[1]) || zero(fields[2])) return std::nullopt;
  const char low = fields[3][1];
  const int bits = low <= '9' ? low - '0' : low - 'a';
  return TraceContext{std::string(fields[1]), std::string(fields[2]), (bits & 1) != 0};
}

std::string TraceContext::header() const {
  return fmt::format("00-{}-{}-{}", trace, span, sampled ? "01" : "00");
}

std::string random_hex(std::size_t digits) {
  thread_local std::mt19937_64 bits{std::random_device{}()};
  std::string out;
  while (out.size() < digits || zero(out)) {
    if (out.size() >= digits) out.clear();
    out += fmt::format("{:016x}", bits());
  }
  out.resize(digits);
  return zero(out) ? random_hex(digits) : out;
}

// Write spans as OTLP does.
namespace {

json::object any_value(const json::value& value) {
  if (value.is_bool()) return {{"boolValue", value}};
  if (value.is_double()) return {{"doubleValue", value}};
  if (value.is_number()) return {{"intValue", json::serialize(value)}};
  return {{"stringValue", value}};
}

json::array key_values(const json::object& attributes) {
  json::array out;
  for (const auto& [key, value] : attributes)
    out.push_back({{"key", key}, {"value", any_value(value)}});
  return out;
}

std::string nanoseconds(Span::Time time) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

}  // namespace

std::string otlp_json(const std::vector<Span>& spans, std::string_view service,
                      std::string_view version) {
  json::array list;
  for (const Span& span : spans) {
    constexpr int ok = 1, failed = 2;
    json::object one{{"traceId", span.trace},
                     {"spanId", span.id},
                     {"name", span.name},
                     {"kind", static_cast<int>(span.kind)},
                     {"startTimeUnixNano", nanoseconds(span.begin)},
                     {"endTimeUnixNano", nanoseconds(span.end)},
                     {"attributes", key_values(span.attributes)},
                     {"status", {{"code", span.error.empty() ? ok : failed}}}};
    if (!span.parent.empty()) one["parentSpanId"] = span.parent;
    if (!span.error.empty()) one["status"].get_object()["message"] = span.error;
    list.emplace_back(std::move(one));
  }
  json::object resource{
      {"attributes", key_values({{"service.name", service}, {"service.version", version}})}};
  json::object scope{{"scope", {{"name", "rose.serve"}, {"version", version}}},
                     {"spans", std::move(list)}};
  return json::serialize(json::object{
      {"resourceSpans",
       json::array{{{"resource", std::move(resource)}, {"scopeSpans", json::array{scope}}}}}});
}

}  // namespace rose::serve
