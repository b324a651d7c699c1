// Refuse a request so that its author can mend it.

#include "rose/serve/api_error.h"

#include <utility>

namespace rose::serve {

constexpr const char* bad_request = "invalid_request_error";

ApiError::ApiError(int s, const std::string& message, std::string t, std::string p, std::string c)
    : std::runtime_error(message),
      status(s),
      type(std::move(t)),
      param(std::move(p)),
      code(std::move(c)) {}

json::object ApiError::body() const {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? json::value() : json::value(text);
  };
  return {
      {"error",
       {{"message", what()}, {"type", type}, {"param", or_null(param)}, {"code", or_null(code)}}}};
}

HttpResponse ApiError::response() const {
  HttpResponse out{status, {{"content-type", "application/json"}}, json::serialize(body())};
  if (retry_after > 0) out.headers.emplace_back("retry-after", std::to_string(retry_after));
  return out;
}

void invalid(const std::string& message, std::string param, std::string code) {
  throw ApiError(400, message, bad_request, std::move(param), std::move(code));
}

ApiError no_engine(const std::string& why) {
  ApiError out(503, "The engine is not available: " + why + ".", "server_error", "",
               "engine_unavailable");
  out.retry_after = 2;
  return out;
}

ApiError overloaded(const std::string& why) {
  ApiError out(429, "The server is busy: " + why + ".", "rate_limit_error", "", "queue_full");
  out.retry_after = 1;
  return out;
}

ApiError api_error(const core::Error& error, const std::string& prompt) {
  using core::Code;
  std::string param = error.argument() == "prompt" ? prompt : error.argument();
  std::string message = error.message();
  if (!error.hint().empty()) message += " (" + error.hint() + ")";
  switch (error.code()) {
    case Code::resource_exhausted:
      if (param == "engine") return overloaded(message);
      return {400, message, bad_request, param, param == prompt ? "context_length_exceeded" : ""};
    case Code::out_of_range:
      return {400, message, bad_request, param,
              param == prompt ? "context_length_exceeded" : "invalid_value"};
    case Code::invalid_argument:
    case Code::corrupt:
    case Code::unsupported: return {400, message, bad_request, param, "invalid_value"};
    case Code::not_found: return {404, message, bad_request, param, "not_found"};
    default: return {500, message, "server_error", param, ""};
  }
}

}  // namespace rose::serve
