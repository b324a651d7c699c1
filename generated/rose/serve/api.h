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
#include "rose/serve/rate_limit.h"
#include "rose/serve/request_log.h"
#include "rose/serve/span_exporter.h"
#include "rose/serve/static_files.h"

namespace rose::serve {

/// A key that clients may have.
struct ApiKey {
  std::string hash;                 ///< SHA-256 of it, in hexadecimal
  std::string name;                 ///< for logs; may be empty
  double requests = 0, tokens = 0;  ///< it may have so many a minute; 0: any number
};

/// How the API is to be served.
struct ApiOptions {
  std::vector<ApiKey> keys;          ///< none: no key is needed
  double requests = 0, tokens = 0;   ///< a minute, for each client without a key; 0: any number
  std::vector<std::string> origins;  ///< that may call from a browser; "*": all
  std::optional<StaticFiles> site{};
  int workers = 2;
  std::size_t most_waiting = 1024;  ///< requests that are being read
  std::int64_t stream_interval = 1;
};

class Api {
 public:
  Api(ModelCard card, Backend& backend, ApiOptions options);
  /// On an I/O thread. What is trusted needs no key and counts as of this machine.
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange, bool trusted = false);
  bool called(const std::string& name) const { return card_.called(name); }
  static json::object body_of(const HttpRequest& request);  ///< throws ApiError
  void drain() { draining_ = true; }                        ///< from now on questions are refused
  void stop() { pool_.stop(); }  ///< after the backend, and before the exchanges' server goes
  std::function<HttpCounts()> http_counts;
  std::shared_ptr<SpanExporter> spans;      ///< null: nothing is recorded
  std::shared_ptr<RequestLog> request_log;  ///< null: none is written
  double trace_share = 1.0;                 ///< of the requests that begin a trace

 private:
  struct Call {
    HttpRequest request;
    std::shared_ptr<Exchange> exchange;
    std::string id;
    Headers headers;              ///< of every answer to it
    const ApiKey* key = nullptr;  ///< null: none is needed
    bool trusted = false;
    TraceContext trace;       ///< with our span,
    std::string caller_span;  ///< which is below this one; empty: it is the first
    Passage::Clock::time_point arrived = Passage::Clock::now();
  };
  using Body = json::object;
  void route(Call& call);
  void answer(Call& call, HttpResponse response) const;
  void answer(Call& call, const json::value& value) const;
  const ApiKey* authorize(const Call& call) const;  ///< null: none is needed
  Headers common_headers(const HttpRequest& request, const std::string& id) const;
  void get(Call& call);
  void ask(const std::shared_ptr<Call>& call, Ask (*read)(const Body&, const ModelCard&));
  Kitchen kitchen(const std::shared_ptr<Call>& call);
  /// Last of all, when the prompts are known.
  void before_asking(Call& call, std::size_t tokens);
  void passed(const Call& call, const Passage& passage);
  /// Puts the questions of one who needs all answers.
  template <class G, class Asked>
  void gather(const std::shared_ptr<Call>& call, Asked asked) {
    std::size_t tokens = 0;
    for (const Question& question : asked.questions) tokens += question.prompt.size();
    before_asking(*call, tokens);
    std::make_shared<G>(kitchen(call), std::move(asked), call->exchange, call->headers)->start();
  }
  json::object question_body(Call& call);  ///< throws where no question is taken
  json::object tokenize(const Body& body) const;
  json::object detokenize(const Body& body) const;
  json::object model_json(const std::string& name) const;
  json::array models_json() const;
  json::object state_json() const;
  HttpResponse health() const;
  void refuse(Call& call, const ApiError& error);
  RateLimits limits_of(const Call& call) const;
  static const std::string& caller(const Call& call);
  void show_limits(Call& call, RateLimits limits);
  void count_request(Call& call);
  void count_prompt(Call& call, std::size_t tokens);
  void count_answer(const Call& call, std::int64_t tokens);
  RateLimiter limiter_;
  void begin_trace(Call& call) const;
  void end_trace(const Call& call, const Passage& passage) const;
  void write_line(const Call& call, const Passage& passage) const;
  void told(const Call& call, const Passage& passage) const;  ///< to both, if they are there

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
