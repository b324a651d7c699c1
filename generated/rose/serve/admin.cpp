// Answer an operator.

#include "rose/serve/admin.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "rose/core/hash.h"
#include "rose/core/log.h"

namespace rose::serve {

// Refuse browsers, strange names, wrong keys.
void Admin::check(const HttpRequest& request) const {
  constexpr int forbidden = 403;
  const auto refuse = [](int status, const char* why, const char* code) {
    throw ApiError(status, why, "invalid_request_error", "", code);
  };
  if (!request.header("origin").empty())
    refuse(forbidden, "This address is not for web pages.", "forbidden");
  std::string_view host = request.header("host");
  if (host.starts_with('['))
    host = host.substr(0, std::min(host.find(']'), host.size() - 1) + 1);
  else
    host = host.substr(0, host.find(':'));
  const std::array<std::string_view, 4> names{"localhost", "127.0.0.1", "[::1]", options_.host};
  if (options_.key_hash.empty() && std::ranges::find(names, host) == names.end())
    refuse(forbidden, "The header 'Host' names another machine.", "forbidden");
  if (options_.key_hash.empty()) return;
  std::string_view given = request.header("authorization");
  constexpr std::string_view scheme = "Bearer ";
  given = given.starts_with(scheme) ? given.substr(scheme.size()) : std::string_view{};
  const std::string hash = core::sha256_hex(given);
  const bool same = hash.size() == options_.key_hash.size() &&
                    CRYPTO_memcmp(hash.data(), options_.key_hash.data(), hash.size()) == 0;
  constexpr int unauthorized = 401;
  if (!same) refuse(unauthorized, "This address needs the operator's key.", "invalid_api_key");
}

// Load adapters, and take them out.
void tell(Exchange& exchange, const std::string& text) {
  exchange.respond({200, {{"content-type", "text/plain; charset=utf-8"}}, text + "\n"});
}

const Outcome* failure(const std::vector<Outcome>& outcomes) {
  const auto failed =
      std::ranges::find_if(outcomes, [](const Outcome& o) { return o.error.has_value(); });
  return failed == outcomes.end() ? nullptr : &*failed;
}

ApiError as_api(const core::Error& error) {
  if (error.code() == core::Code::io) return no_engine(error.message());
  return api_error(error, "lora_path");
}

void Admin::load(const json::object& body, const std::shared_ptr<Exchange>& exchange) {
  Fields fields(body);
  for (const char* field : {"lora_name", "lora_path"}) fields.require(field);
  const std::string name = fields.text("lora_name"), path = fields.text("lora_path");
  fields.finish();
  constexpr std::size_t longest = 256;
  if (name.empty() || name.size() > longest)
    invalid("Invalid 'lora_name': 1 to 256 bytes are expected.", "lora_name", "invalid_value");
  if (adapters_->has(name) || api_.called(name))
    invalid(fmt::format("Invalid 'lora_name': '{}' is a model of this server already.", name),
            "lora_name", "already_loaded");
  const std::string folder = std::filesystem::absolute(path).string();
  backend_.operate(
      {Operation::Kind::load_adapter, name, folder},
      [this, name, exchange](const std::vector<Outcome>& outcomes) {
        if (const Outcome* failed = failure(outcomes)) {
          const bool some = std::ranges::any_of(outcomes, [](const auto& o) { return !o.error; });
          if (some) backend_.operate({Operation::Kind::unload_adapter, name, ""}, [](auto) {});
          return exchange->respond(as_api(*failed->error).response());
        }
        adapters_->add(name);
        core::log(core::LogLevel::info, "adapter '{}' loaded", name);
        tell(*exchange, fmt::format("Success: LoRA adapter '{}' added successfully.", name));
      });
}

void Admin::unload(const json::object& body, const std::shared_ptr<Exchange>& exchange) {
  Fields fields(body);
  fields.require("lora_name");
  const std::string name = fields.text("lora_name");
  fields.ignore({"lora_int_id"});
  fields.finish();
  if (!adapters_->has(name))
    throw ApiError(404, fmt::format("The adapter '{}' is not loaded.", name),
                   "invalid_request_error", "lora_name", "not_found");
  adapters_->remove(name);  // first: nobody asks for it from now on
  backend_.operate({Operation::Kind::unload_adapter, name, ""},
                   [name, exchange](const std::vector<Outcome>& outcomes) {
                     if (const Outcome* failed = failure(outcomes))
                       return exchange->respond(as_api(*failed->error).response());
                     tell(*exchange,
                          fmt::format("Success: LoRA adapter '{}' removed successfully.", name));
                   });
}

// Record, and write it down.
void Admin::profile(bool start, const std::shared_ptr<Exchange>& exchange) {
  const auto kind = start ? Operation::Kind::start_profile : Operation::Kind::stop_profile;
  const std::string folder = std::filesystem::absolute(options_.profiles).string();
  backend_.operate({kind, "", folder}, [exchange](const std::vector<Outcome>& outcomes) {
    if (const Outcome* failed = failure(outcomes)) {
      const core::Error& error = *failed->error;
      ApiError refused = as_api(error);
      if (error.code() == core::Code::invalid_argument) refused.status = 409, refused.param = "";
      return exchange->respond(refused.response());
    }
    json::array files;
    for (const Outcome& outcome : outcomes)
      if (!outcome.said.empty()) files.emplace_back(outcome.said);
    exchange->respond({200,
                       {{"content-type", "application/json"}},
                       json::serialize(json::object{{"files", std::move(files)}})});
  });
}

// Tell the paths apart.
void Admin::handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange) {
  try {
    check(request);
    const std::string path = request.path;
    const bool shown = path == "/debug/state" || path == "/metrics" || path == "/health";
    if (shown) return api_.handle(std::move(request), exchange, true);
    constexpr std::array posts{"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/start_profile",
                               "/stop_profile"};
    if (std::ranges::find(posts, path) == posts.end())
      throw ApiError(404, fmt::format("Invalid URL ({} {})", request.method, path),
                     "invalid_request_error", "", "unknown_url");
    if (request.method != "POST")
      throw ApiError(405,
                     fmt::format("Not allowed to {} on {} (HINT: use POST).", request.method, path),
                     "invalid_request_error", "", "method_not_supported");
    if (request.body.empty()) request.body = "{}";
    const json::object body = Api::body_of(request);
    if (path == posts[0]) return load(body, exchange);
    if (path == posts[1]) return unload(body, exchange);
    Fields(body).finish();
    profile(path == posts[2], exchange);
  } catch (const ApiError& error) {
    exchange->respond(error.response());
  } catch (const core::Error& error) {
    exchange->respond(api_error(error).response());
  }
}

}  // namespace rose::serve
