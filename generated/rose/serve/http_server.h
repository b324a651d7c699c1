// Serve HTTP/1.1 on one address.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rose/serve/http.h"

namespace rose::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one
  std::size_t most_connections = 4096;
  std::size_t head_bytes = 16 << 10;
  std::size_t body_bytes = 8 << 20;
  std::size_t unsent_bytes =
      1 << 20;  ///< of a stream whose reader is slow: beyond it, the stream is cut
  std::size_t pipelined_bytes = 64
                                << 10;  ///< of further requests, kept while one is being answered
  std::chrono::milliseconds idle{75'000}, head{10'000}, body{60'000}, write{30'000};
  std::chrono::milliseconds heartbeat{15'000};
  std::string tls_certificate{}, tls_key{};  ///< files (PEM, the chain and its key); empty: no TLS
};

struct HttpCounts {
  std::size_t open = 0;  ///< connections now
  std::size_t busy = 0;  ///< of them, with a request that is being answered
  std::uint64_t accepted = 0, refused = 0, cut = 0, malformed = 0;
};

/// One thread does all reading and writing; handlers are called on it and must not block.
class HttpServer {
 public:
  /// Binds and listens. Throws core::Error (io) that says what stands in the way.
  HttpServer(HttpOptions options, Handler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  std::uint16_t port() const;
  HttpCounts counts() const;
  void run();  ///< until drained or stopped
  /// Any thread: no new connections, idle ones closed; run returns when the last answer is out, or after `limit`, when what is left
  /// is cut.
  void drain(std::chrono::milliseconds limit);
  void on_terminate(std::function<void()> told);  ///< SIGTERM and SIGINT arrive here while run runs

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// The usual words for a status.
const char* reason_phrase(int status);

}  // namespace rose::serve
