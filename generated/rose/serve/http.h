// A request, and the way to answer it.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rose::serve {

using Headers = std::vector<std::pair<std::string, std::string>>;

/// A request whose head and body have arrived whole.
struct HttpRequest {
  std::string method;
  std::string path, query;  ///< of the target, as sent: nothing is decoded
  Headers headers;          ///< names in lower case
  std::string body;
  std::string peer;       ///< address of the client
  bool loopback = false;  ///< it is on this machine

  std::string_view header(std::string_view name) const;  ///< name in lower case; empty: absent
};

struct HttpResponse {
  int status = 200;
  Headers headers{};
  std::string body{};
};

/// The answer's side of one request. Any thread may call; after the client has gone the calls do nothing. An exchange that is
/// dropped without an answer is answered with status 500.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(HttpResponse response) = 0;  ///< the whole answer
  /// A stream: its head, then pieces. While none is sent for a while, `heartbeat` is.
  virtual void begin(HttpResponse head, std::string heartbeat) = 0;
  virtual void send(std::string piece) = 0;
  virtual void end() = 0;
  /// Called once, on another thread, if the client goes away or is given up before the answer has ended.
  virtual void when_gone(std::function<void()> told) = 0;
};

using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

}  // namespace rose::serve
