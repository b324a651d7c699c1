// Answer the API's requests.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rose/serve/answer.h"
#include "rose/serve/embeddings.h"
#include "rose/serve/http_server.h"
#include "rose/serve/static_files.h"

namespace rose::serve {

struct ApiOptions {
  std::vector<std::string>
      key_hashes;  ///< SHA-256 of the keys, in hexadecimal; none: no key is needed
  std::vector<std::string> origins;  ///< that may call from a browser; "*": all
  std::optional<StaticFiles> site{};
  int workers = 2;
  std::size_t most_waiting = 1024;  ///< requests that are being read
  std::int64_t stream_interval = 1;
};

class Api {
 public:
  Api(ModelCard card, Backend& backend, ApiOptions options);
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);  ///< on the I/O thread
  void drain() { draining_ = true; }  ///< from now on questions are refused
  void stop() { pool_.stop(); }       ///< after the backend, and before the exchanges' server goes
  std::function<HttpCounts()> http_counts;

 private:
  struct Call {
    HttpRequest request;
    std::shared_ptr<Exchange> exchange;
    std::string id;
    Headers headers;  ///< of every answer to it
  };
  using Body = json::object;
  void route(Call& call);
  void answer(Call& call, HttpResponse response) const;
  void answer(Call& call, const json::value& value) const;
  void authorize(const Call& call) const;
  Headers common_headers(const HttpRequest& request, const std::string& id) const;
  void get(Call& call);
  void ask(const std::shared_ptr<Call>& call, Ask (*read)(const Body&, const ModelCard&));
  Kitchen kitchen() { return {card_, backend_, metrics_, pool_, options_.stream_interval}; }
  json::object question_body(const Call& call) const;  ///< throws where no question is taken
  json::object tokenize(const Body& body) const;
  json::object detokenize(const Body& body) const;
  json::object model_json() const;
  json::object state_json() const;
  HttpResponse health() const;
  static json::object body_of(const HttpRequest& request);

  ModelCard card_;
  Backend& backend_;
  ApiOptions options_;
  Metrics metrics_;
  std::atomic<bool> draining_{false};
  std::atomic<std::uint64_t> numbers_{0};
  std::uint64_t run_ = 0;  ///< a random number: ids of two runs differ
  WorkPool pool_;
};

}  // namespace rose::serve
