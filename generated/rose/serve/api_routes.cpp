// Everything but questions.

#include <fmt/format.h>

#include <algorithm>

#include "rose/serve/api.h"
#include "rose/text/byte_level.h"

namespace rose::serve {

// Which path takes which method, and needs a key.
struct Route {
  std::string_view path, method;
  bool open = false;  ///< without a key
};
constexpr std::array routes{Route{"/v1/chat/completions", "POST"},
                            Route{"/v1/completions", "POST"},
                            Route{"/v1/embeddings", "POST"},
                            Route{"/generate", "POST"},
                            Route{"/v1/responses", "POST"},
                            Route{"/v1/score", "POST"},
                            Route{"/tokenize", "POST"},
                            Route{"/detokenize", "POST"},
                            Route{"/v1/models", "GET"},
                            Route{"/metrics", "GET"},
                            Route{"/debug/state", "GET"},
                            Route{"/health", "GET", true},
                            Route{"/version", "GET", true}};

void Api::route(Call& call) {
  const HttpRequest& request = call.request;
  const auto found = std::ranges::find(routes, request.path, &Route::path);
  const bool listed = found != routes.end();
  if (request.method == "OPTIONS") return;  // a browser asks what it may send, without a key
  const bool v1 = request.path.starts_with("/v1/");
  const bool guarded = (listed && !found->open) || v1;
  if (guarded && !call.trusted) call.key = authorize(call);
  const std::string_view method = listed ? found->method : "GET";
  const bool fits = request.method == method || (method == "GET" && request.method == "HEAD");
  if (fits) return;
  ApiError error(
      405,
      fmt::format("Not allowed to {} on {} (HINT: use {}).", request.method, request.path, method),
      "invalid_request_error", "", "method_not_supported");
  if (!listed)
    error = ApiError(404, fmt::format("Invalid URL ({} {})", request.method, request.path),
                     "invalid_request_error", "", "unknown_url");
  throw error;
}

namespace {

// What the engines are doing.
json::array views_json(const std::vector<infer::EngineView>& views) {
  static constexpr std::array states{"free", "cached", "referenced", "in_flight", "scratch"};
  json::array out;
  for (const infer::EngineView& view : views) {
    json::array sequences, pages;
    for (const infer::SequenceView& s : view.sequences)
      sequences.push_back({{"request", s.request},
                           {"choice", s.choice},
                           {"state", s.running ? "running" : "waiting"},
                           {"prompt_tokens", s.prompt},
                           {"tokens", s.known},
                           {"computed", s.computed},
                           {"cached", s.found},
                           {"preemptions", s.preemptions},
                           {"pages", json::value_from(s.pages)}});
    for (std::size_t from = 0, to = 0; from < view.pages.size(); from = to) {
      while (to < view.pages.size() && view.pages[to] == view.pages[from]) ++to;
      pages.push_back({states.at(view.pages[from]), to - from});
    }
    out.push_back({{"steps", view.statistics.steps},
                   {"sequences", std::move(sequences)},
                   {"page_states", std::move(pages)}});
  }
  return out;
}

}  // namespace

// What can be looked at.
void Api::get(Call& call) {
  const HttpRequest& request = call.request;
  if (request.path == "/health") return answer(call, health());
  if (request.path == "/version") return answer(call, json::value{{"version", ROSE_VERSION}});
  if (request.path == "/v1/models")
    return answer(call, json::value{{"object", "list"}, {"data", models_json()}});
  constexpr std::string_view models = "/v1/models/";
  if (request.path.starts_with(models)) {
    const auto name = percent_decoded(std::string_view(request.path).substr(models.size()));
    if (name && card_.called(*name)) return answer(call, model_json(card_.name));
    if (name && card_.adapters->has(*name)) return answer(call, model_json(*name));
    throw ApiError(404, fmt::format("The model '{}' does not exist", name.value_or("")),
                   "invalid_request_error", "model", "model_not_found");
  }
  if (request.path == "/metrics") {
    std::string page = metrics_.page(backend_, http_counts ? http_counts() : HttpCounts{});
    page += fmt::format(
        "# HELP rose_spans_exported_total Spans that a collector took\n"
        "# TYPE rose_spans_exported_total counter\nrose_spans_exported_total {}\n"
        "# HELP rose_spans_dropped_total Spans that nobody took\n"
        "# TYPE rose_spans_dropped_total counter\nrose_spans_dropped_total {}\n",
        spans ? spans->exported() : 0, spans ? spans->dropped() : 0);
    return answer(call, HttpResponse{200,
                                     {{"content-type", "text/plain; version=0.0.4; charset=utf-8"}},
                                     std::move(page)});
  }
  if (request.path == "/debug/state") {
    if (!request.loopback && !call.trusted)
      throw ApiError(403, "The state is shown on this machine only.", "invalid_request_error", "",
                     "forbidden");
    return backend_.look([exchange = call.exchange, headers = call.headers,
                          state = state_json()](const std::vector<infer::EngineView>& views) {
      json::object out = state;
      out["engines"] = views_json(views);
      HttpResponse response{200, {{"content-type", "application/json"}}, json::serialize(out)};
      response.headers.insert(response.headers.end(), headers.begin(), headers.end());
      exchange->respond(std::move(response));
    });
  }
  if (options_.site) {
    if (auto file = options_.site->get(request)) return answer(call, std::move(*file));
  }
  throw ApiError(404, fmt::format("Invalid URL ({} {})", request.method, request.path),
                 "invalid_request_error", "", "unknown_url");
}

// Text to tokens and back.
json::object Api::tokenize(const Body& body) const {
  Fields fields(body);
  Ask ask;
  read_model(fields, card_, ask);
  std::vector<std::int32_t> ids;
  const bool strings = fields.flag("return_token_strs", false);
  if (fields.has("messages")) {
    const json::array tools = read_tools(fields, ask);
    card_.tokenizer.encode(
        chat_prompt(fields, card_, tools, fields.flag("add_generation_prompt", true)), true, ids);
  } else {
    fields.require("prompt");
    if (fields.flag("add_special_tokens", true))
      ids.assign(card_.tokenizer.prefix().begin(), card_.tokenizer.prefix().end());
    card_.tokenizer.encode(fields.text("prompt"), true, ids);
  }
  fields.finish();
  json::object out{
      {"count", ids.size()}, {"max_model_len", card_.positions}, {"tokens", json::value_from(ids)}};
  if (strings) {
    json::array spelt;
    for (const std::int32_t id : ids)
      spelt.emplace_back(text::spell_bytes(card_.tokenizer.bytes(id)));
    out["token_strs"] = std::move(spelt);
  }
  return out;
}

json::object Api::detokenize(const Body& body) const {
  Fields fields(body);
  Ask ask;
  read_model(fields, card_, ask);
  fields.require("tokens");
  std::vector<std::int32_t> ids;
  for (const json::value& id : *fields.array("tokens", 0, std::size_t{1} << 20)) {
    if (!id.is_int64()) wrong_type("tokens", "an array of integers", id);
    if (id.get_int64() < 0 || id.get_int64() >= card_.tokenizer.vocab_size())
      invalid(fmt::format("Invalid 'tokens': {} is not the id of a token.", id.get_int64()),
              "tokens", "invalid_value");
    ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  }
  fields.finish();
  return {{"prompt", card_.tokenizer.decode(ids)}};
}

// Health, the model, and the state.
HttpResponse Api::health() const {
  const bool well = backend_.facts().has_value() && !draining_;
  const json::object body{{"status", draining_ ? "draining"
                                     : well    ? "ok"
                                               : "unavailable"},
                          {"restarts", backend_.restarts()}};
  return {well ? 200 : 503, {{"content-type", "application/json"}}, json::serialize(body)};
}

json::object Api::model_json(const std::string& name) const {
  json::object out{{"id", name},
                   {"object", "model"},
                   {"created", card_.created},
                   {"owned_by", "rosellm"},
                   {"max_model_len", card_.positions}};
  if (name != card_.name) out["parent"] = card_.name;
  return out;
}

json::array Api::models_json() const {
  json::array out{model_json(card_.name)};
  for (const std::string& name : card_.adapters->all()) out.emplace_back(model_json(name));
  return out;
}

json::object Api::state_json() const {
  const infer::Statistics s = backend_.statistics();
  json::object out{{"running", s.running},
                   {"waiting", s.waiting},
                   {"steps", s.steps},
                   {"preemptions", s.preemptions},
                   {"prompt_tokens", s.prompt_tokens},
                   {"answer_tokens", s.answer_tokens},
                   {"restarts", backend_.restarts()},
                   {"pages",
                    {{"free", s.pages.free},
                     {"cached", s.pages.cached},
                     {"referenced", s.pages.referenced},
                     {"in_flight", s.pages.in_flight}}}};
  if (const auto facts = backend_.facts()) {
    out["runner"] = facts->runner;
    out["page_size"] = facts->page_size;
    out["total_pages"] = facts->pages;
  }
  return out;
}

}  // namespace rose::serve
