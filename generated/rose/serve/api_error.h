// Refuse a request so that its author can mend it.

#pragma once

#include <stdexcept>
#include <string>

#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/serve/http.h"

namespace rose::serve {

namespace json = core::json;

struct ApiError : std::runtime_error {
  ApiError(int status, const std::string& message, std::string type, std::string param = "",
           std::string code = "");
  int status;
  std::string type, param, code;  ///< empty: null
  int retry_after = 0;            ///< seconds; 0: not said
  json::object body() const;      ///< {"error": {...}}
  HttpResponse response() const;
};

/// Status 400, type invalid_request_error.
[[noreturn]] void invalid(const std::string& message, std::string param, std::string code);

/// What the engine or a parser said, as the API says it. `prompt` is what the request calls its prompt.
ApiError api_error(const core::Error& error, const std::string& prompt = "prompt");
ApiError no_engine(const std::string& why);
ApiError overloaded(const std::string& why);

}  // namespace rose::serve
