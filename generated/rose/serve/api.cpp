// Answer the API's requests.

#include "rose/serve/api.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <random>

#include "rose/core/hash.h"
#include "rose/core/log.h"
#include "rose/serve/response_form.h"
#include "rose/serve/scores.h"

namespace rose::serve {

// Begin.
Api::Api(ModelCard card, Backend& backend, ApiOptions options)
    : card_(std::move(card)),
      backend_(backend),
      options_(std::move(options)),
      pool_(options_.workers, options_.most_waiting) {
  std::random_device random;
  run_ = (std::uint64_t{random()} << 32) | random();
}

void Api::answer(Call& call, HttpResponse response) const {
  response.headers.insert(response.headers.end(), call.headers.begin(), call.headers.end());
  call.exchange->respond(std::move(response));
}

void Api::answer(Call& call, const json::value& value) const {
  answer(call, HttpResponse{200, {{"content-type", "application/json"}}, json::serialize(value)});
}

// Headers of every answer.
Headers Api::common_headers(const HttpRequest& request, const std::string& id) const {
  Headers headers{{"x-request-id", id}, {"server", "rose"}};
  const std::string origin(request.header("origin"));
  if (origin.empty()) return headers;
  const auto allowed = [&](const std::string& one) { return one == "*" || one == origin; };
  if (!std::ranges::any_of(options_.origins, allowed)) return headers;
  headers.insert(headers.end(), {{"access-control-allow-origin", origin},
                                 {"vary", "origin"},
                                 {"access-control-expose-headers", "x-request-id"}});
  if (request.method == "OPTIONS")
    headers.insert(headers.end(), {{"access-control-allow-methods", "GET, POST, OPTIONS"},
                                   {"access-control-allow-headers", "authorization, *"},
                                   {"access-control-max-age", "600"}});
  return headers;
}

std::string request_id(std::string_view given, std::uint64_t run, std::uint64_t number) {
  constexpr std::size_t longest = 128;
  const bool plain = std::ranges::all_of(given, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
  });
  if (!given.empty() && given.size() <= longest && plain) return std::string(given);
  return fmt::format("{:016x}{:08x}", run, number);
}

// Ask for a key.
const ApiKey* Api::authorize(const Call& call) const {
  if (options_.keys.empty()) return nullptr;
  std::string_view given = call.request.header("authorization");
  constexpr std::string_view scheme = "Bearer ";
  if (given.empty())
    throw ApiError(
        401, "You didn't provide an API key. Send it in the header 'Authorization: Bearer KEY'.",
        "invalid_request_error", "", "missing_api_key");
  given = given.starts_with(scheme) ? given.substr(scheme.size()) : std::string_view{};
  const std::string hash = core::sha256_hex(given);
  const ApiKey* known = nullptr;
  for (const ApiKey& key : options_.keys) {
    const bool same = key.hash.size() == hash.size() &&
                      CRYPTO_memcmp(key.hash.data(), hash.data(), hash.size()) == 0;
    if (same) known = &key;  // and go on: which one it was takes no other time
  }
  if (known == nullptr)
    throw ApiError(401, "Incorrect API key provided.", "invalid_request_error", "",
                   "invalid_api_key");
  return known;
}

// Read a body that must be an object.
json::object Api::body_of(const HttpRequest& request) {
  const std::string_view type = request.header("content-type");
  const std::string_view kind = type.substr(0, type.find(';'));
  if (!kind.empty() && kind != "application/json")
    throw ApiError(415, fmt::format("Unsupported content type '{}': send application/json.", kind),
                   "invalid_request_error", "", "unsupported_content_type");
  constexpr std::size_t deepest = 64;
  json::value parsed;
  try {
    parsed = core::parse_json(request.body, "request body", {.depth = deepest});
  } catch (const core::Error& error) {
    invalid(fmt::format("We could not parse the JSON body of your request: {}", error.what()), "",
            "invalid_json");
  }
  if (!parsed.is_object()) invalid("The body of a request is a JSON object.", "", "invalid_json");
  return std::move(parsed.get_object());
}

// Read a question and put it.
json::object Api::question_body(Call& call) {
  if (draining_) throw no_engine("the server is shutting down");
  if (!backend_.facts()) throw no_engine("it is starting, or starting again");
  count_request(call);
  json::object body = body_of(call.request);
  std::string().swap(call.request.body);  // the call lives as long as its answer
  return body;
}

void Api::before_asking(Call& call, std::size_t tokens) {
  core::log(core::LogLevel::debug, "{}: {} tokens", call.id, tokens);
  if (draining_) throw no_engine("the server is shutting down");
  count_prompt(call, tokens);
}

void Api::passed(const Call& call, const Passage& passage) {
  const double took = std::chrono::duration<double>(Passage::Clock::now() - passage.begin).count();
  core::log(core::LogLevel::debug, "{}: status {} after {:.3f} s", call.id, passage.status, took);
  metrics_.request(passage.status, took, passage.usage);
  if (passage.status != 200) metrics_.error(passage.status, passage.code);
  const auto seconds = [](auto duration) {
    return std::chrono::duration<double>(duration).count();
  };
  if (passage.accepted && passage.first_token)
    metrics_.phases(seconds(std::chrono::microseconds(passage.queued_us)),
                    seconds(*passage.first_token - *passage.accepted -
                            std::chrono::microseconds(passage.queued_us)));
  count_answer(call, passage.usage.completion);
  told(call, passage);
}

Kitchen Api::kitchen(const std::shared_ptr<Call>& call) {
  return {card_,
          backend_,
          metrics_,
          pool_,
          options_.stream_interval,
          [this, call](const Passage& passage) { passed(*call, passage); }};
}

void Api::ask(const std::shared_ptr<Call>& call, Ask (*read)(const Body&, const ModelCard&)) {
  Ask asked = read(question_body(*call), card_);
  std::size_t tokens = 0;
  for (const auto& prompt : asked.prompts) tokens += prompt.size();
  before_asking(*call, tokens);
  std::make_shared<Answer>(kitchen(call), std::move(asked), call->exchange, call->id, call->headers)
      ->start();
}

// Take a request to a thread that may work.
void Api::refuse(Call& call, const ApiError& error) {
  metrics_.error(error.status, error.code);
  core::log(core::LogLevel::debug, "{}: refused, {}", call.id, error.what());
  if (call.request.method == "POST") {
    Passage passage{.begin = call.arrived, .status = error.status, .code = error.code};
    told(call, passage);
  }
  answer(call, error.response());
}

void Api::handle(HttpRequest request, std::shared_ptr<Exchange> exchange, bool trusted) {
  auto call = std::make_shared<Call>();
  call->trusted = trusted;
  call->id = request_id(request.header("x-request-id"), run_, ++numbers_);
  call->headers = common_headers(request, call->id);
  call->request = std::move(request);
  call->exchange = std::move(exchange);
  if (trusted) call->request.loopback = true;
  begin_trace(*call);
  const auto work = [this, call] {
    try {
      route(*call);
      const std::string& path = call->request.path;
      if (call->request.method == "OPTIONS")  // the headers say what a browser may send
        answer(*call, HttpResponse{204, {}, ""});
      else if (path == "/v1/chat/completions")
        ask(call, read_chat);
      else if (path == "/v1/completions")
        ask(call, read_completion);
      else if (path == "/v1/embeddings")
        gather<Embeddings>(call, read_embeddings(question_body(*call), card_));
      else if (path == "/generate")
        ask(call, read_generate);
      else if (path == "/v1/responses")
        ask(call, read_response);
      else if (path == "/v1/score")
        gather<Scores>(call, read_scores(question_body(*call), card_));
      else if (path == "/tokenize")
        answer(*call, tokenize(body_of(call->request)));
      else if (path == "/detokenize")
        answer(*call, detokenize(body_of(call->request)));
      else
        get(*call);
    } catch (const ApiError& error) {
      refuse(*call, error);
    } catch (const core::Error& error) {
      refuse(*call, api_error(error));
    } catch (const std::exception& error) {
      refuse(*call, ApiError(500, error.what(), "server_error"));
    }
  };
  if (!pool_.try_post(work)) refuse(*call, overloaded("too many requests are being read"));
}

}  // namespace rose::serve
