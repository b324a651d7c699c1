// Serve HTTP/1.1 on one address.

#include "rose/serve/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "rose/core/error.h"
#include "rose/core/log.h"

namespace rose::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Name the statuses.
const char* reason_phrase(int status) {
  return http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status))).data();
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found =
      std::ranges::find_if(headers, [&](const auto& field) { return field.first == name; });
  return found == headers.end() ? std::string_view{} : std::string_view(found->second);
}

namespace {

// A socket, with TLS around it or without.
class Stream {
 public:
  using executor_type = tcp::socket::executor_type;
  Stream(tcp::socket connected, asio::ssl::context* tls) : socket(std::move(connected)) {
    if (tls != nullptr) secure.emplace(socket, *tls);
  }
  executor_type get_executor() { return socket.get_executor(); }
  template <class Buffers, class Told>
  void async_read_some(const Buffers& buffers, Told&& told) {
    if (secure)
      secure->async_read_some(buffers, std::forward<Told>(told));
    else
      socket.async_read_some(buffers, std::forward<Told>(told));
  }
  template <class Buffers, class Told>
  void async_write_some(const Buffers& buffers, Told&& told) {
    if (secure)
      secure->async_write_some(buffers, std::forward<Told>(told));
    else
      socket.async_write_some(buffers, std::forward<Told>(told));
  }
  tcp::socket socket;
  std::optional<asio::ssl::stream<tcp::socket&>> secure;
};

std::unique_ptr<asio::ssl::context> make_tls(const HttpOptions& options) {
  if (options.tls_certificate.empty()) return nullptr;
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                   asio::ssl::context::no_tlsv1_1);
  const auto must = [](const error_code& error, const char* what, const std::string& file) {
    if (error)
      throw core::Error(core::Code::io, fmt::format("{}: {}", what, error.message())).in(file);
  };
  error_code error;
  tls->use_certificate_chain_file(options.tls_certificate, error);
  must(error, "no certificate could be read", options.tls_certificate);
  tls->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  must(error, "no key that belongs to the certificate could be read", options.tls_key);
  return tls;
}

class Connection;

}  // namespace

// What the server keeps.
struct HttpServer::State {
  State(HttpOptions given, Handler called)
      : options(std::move(given)), handler(std::move(called)), tls(make_tls(options)) {}
  void accept();
  void begin_drain(std::chrono::milliseconds limit);
  void closed(const std::shared_ptr<Connection>& connection);

  HttpOptions options;
  Handler handler;
  std::unique_ptr<asio::ssl::context> tls;  ///< null: in the open
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::signal_set signals{context};
  asio::steady_timer drain_limit{context};
  std::function<void()> terminate;
  std::unordered_set<std::shared_ptr<Connection>> connections;  // the I/O thread's
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::atomic<bool> draining{false};
  std::atomic<std::size_t> open{0}, busy{0};
  std::atomic<std::uint64_t> accepted{0}, refused{0}, cut{0}, malformed{0};
};

namespace {

// One client.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServer::State& server, tcp::socket socket)
      : server_(server), stream_(std::move(socket), server.tls.get()), timer_(server.context) {}

  void start();
  void close();        ///< the exchange, if there is one, is told
  void leave_early();  ///< when the server drains: now if idle, else after this answer
  bool busy() const { return phase_ == Phase::busy; }

  // The exchange's side; `number` says which request is meant.
  void respond(std::uint64_t number, const HttpResponse& response);
  void begin(std::uint64_t number, const HttpResponse& response, std::string heartbeat);
  void send(std::uint64_t number, const std::string& piece);
  void end(std::uint64_t number);
  void when_gone(std::uint64_t number, std::function<void()> told);
  asio::io_context& context() { return server_.context; }

 private:
  enum class Phase { greeting, idle, head, body, busy, leaving, closed };
  enum class Framing { none, length, chunks, until_close };

  void read_head();
  void read_body();
  void dispatch();
  void refuse(int status, std::string_view message);
  void watch();
  void on_watched(error_code error, std::size_t bytes);
  void next();
  void put(std::string_view bytes);
  void write();
  void on_written(error_code error, std::size_t bytes);
  void arm(std::chrono::milliseconds limit);
  void on_timeout();
  void wait_for_answer();
  void say_goodbye();
  std::string head(const HttpResponse& response, std::optional<std::size_t> length) const;

  HttpServer::State& server_;
  Stream stream_;
  asio::steady_timer timer_;
  std::uint64_t timer_number_ = 0, request_ = 0;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  Phase phase_ = Phase::idle;
  bool watching_ = false;
  std::string sending_, unsent_;
  std::size_t sent_ = 0;
  bool writing_ = false, complete_ = false, keep_alive_ = true, http_1_0_ = false,
       head_only_ = false;
  Framing framing_ = Framing::none;
  std::string heartbeat_, peer_;
  bool loopback_ = false;
  std::function<void()> gone_;
};

// Hand answers over to the I/O thread.
class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<Connection> connection, std::uint64_t number)
      : connection_(std::move(connection)), number_(number) {}
  ~ConnectionExchange() override {
    if (!ended_) respond({500, {}, ""});
  }
  void respond(HttpResponse response) override {
    ended_ = true;
    post([r = std::move(response)](Connection& c, std::uint64_t n) { c.respond(n, r); });
  }
  void begin(HttpResponse head, std::string heartbeat) override {
    post([h = std::move(head), b = std::move(heartbeat)](Connection& c, std::uint64_t n) mutable {
      c.begin(n, h, std::move(b));
    });
  }
  void send(std::string piece) override {
    post([p = std::move(piece)](Connection& c, std::uint64_t n) { c.send(n, p); });
  }
  void end() override {
    ended_ = true;
    post([](Connection& c, std::uint64_t n) { c.end(n); });
  }
  void when_gone(std::function<void()> told) override {
    post([t = std::move(told)](Connection& c, std::uint64_t n) mutable {
      c.when_gone(n, std::move(t));
    });
  }

 private:
  template <class Action>
  void post(Action action) {
    asio::post(connection_->context(),
               [c = connection_, n = number_, a = std::move(action)]() mutable { a(*c, n); });
  }
  std::shared_ptr<Connection> connection_;
  std::uint64_t number_;
  std::atomic<bool> ended_{false};
};

// Read a request within its limits.
int status_of(error_code error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

void Connection::start() {
  error_code ignored;
  tcp::socket& socket = stream_.socket;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const auto endpoint = socket.remote_endpoint(ignored);
  if (!ignored) {
    peer_ = endpoint.address().to_string();
    loopback_ = endpoint.address().is_loopback();
  }
  if (!stream_.secure) return next();
  phase_ = Phase::greeting;
  arm(server_.options.head);
  stream_.secure->async_handshake(asio::ssl::stream_base::server,
                                  [self = shared_from_this()](error_code error) {
                                    if (self->phase_ != Phase::greeting) return;
                                    if (error) return self->close();
                                    self->next();
                                  });
}

void Connection::read_head() {
  phase_ = Phase::head;
  parser_.emplace();
  parser_->header_limit(static_cast<std::uint32_t>(server_.options.head_bytes));
  parser_->body_limit(server_.options.body_bytes);
  arm(server_.options.head);
  http::async_read_header(
      stream_, buffer_, *parser_, [self = shared_from_this()](error_code error, std::size_t) {
        if (self->phase_ != Phase::head) return;
        if (error == http::error::end_of_stream || error == asio::error::eof) return self->close();
        if (error && error.category() != http::make_error_code(http::error::bad_field).category())
          return self->close();
        if (error) return self->refuse(status_of(error), error.message());
        self->read_body();
      });
}

void Connection::read_body() {
  phase_ = Phase::body;
  const auto& message = parser_->get();
  if (message.version() >= 11 && message.count(http::field::host) != 1)
    return refuse(400, "a request needs exactly one Host header");
  if (parser_->content_length() && *parser_->content_length() > server_.options.body_bytes)
    return refuse(413, fmt::format("the body may be {} bytes long", server_.options.body_bytes));
  if (beast::iequals(message[http::field::expect], "100-continue") && !parser_->is_done())
    put("HTTP/1.1 100 Continue\r\n\r\n");
  arm(server_.options.body);
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, std::size_t) {
                     if (self->phase_ != Phase::body) return;
                     if (!error) return self->dispatch();
                     if (error == http::error::body_limit || error == http::error::bad_chunk ||
                         error == http::error::bad_chunk_extension)
                       return self->refuse(status_of(error), error.message());
                     self->close();
                   });
}

// Hand a request over, or refuse it.
void Connection::refuse(int status, std::string_view message) {
  ++server_.malformed;
  ++request_;
  phase_ = Phase::busy;
  ++server_.busy;
  keep_alive_ = head_only_ = complete_ = false;
  framing_ = Framing::none;
  std::string body = fmt::format(
      R"({{"error":{{"message":"{}","type":"invalid_request_error","param":null,"code":null}}}})",
      message);
  respond(request_, {status, {{"content-type", "application/json"}}, std::move(body)});
}

void Connection::dispatch() {
  auto message = parser_->release();
  parser_.reset();
  ++request_;
  ++server_.busy;
  phase_ = Phase::busy;
  complete_ = false;
  framing_ = Framing::none;
  http_1_0_ = message.version() < 11;
  keep_alive_ = message.keep_alive() && !server_.draining;
  head_only_ = message.method() == http::verb::head;
  HttpRequest request;
  request.method.assign(message.method_string().data(), message.method_string().size());
  std::string_view target(message.target().data(), message.target().size());
  if (target.starts_with("http://")) {  // the absolute form, which proxies use
    const auto path = target.find('/', std::string_view("http://").size());
    target = path == std::string_view::npos ? "/" : target.substr(path);
  }
  const auto question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string_view::npos) request.query = target.substr(question + 1);
  for (const auto& field : message) {
    std::string name(field.name_string().data(), field.name_string().size());
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    request.headers.emplace_back(std::move(name),
                                 std::string(field.value().data(), field.value().size()));
  }
  request.body = std::move(message.body());
  request.peer = peer_;
  request.loopback = loopback_;
  wait_for_answer();
  server_.handler(std::move(request),
                  std::make_shared<ConnectionExchange>(shared_from_this(), request_));
  watch();
}

// Read ahead, to see the end.
void Connection::watch() {
  if (watching_ || phase_ == Phase::closed) return;
  if (buffer_.size() >= server_.options.pipelined_bytes) return;
  watching_ = true;
  constexpr std::size_t piece = 4096;
  stream_.async_read_some(buffer_.prepare(piece),
                          [self = shared_from_this()](error_code error, std::size_t bytes) {
                            self->on_watched(error, bytes);
                          });
}

void Connection::on_watched(error_code error, std::size_t bytes) {
  watching_ = false;
  buffer_.commit(bytes);
  if (phase_ == Phase::closed) return;
  if (error && error != asio::error::operation_aborted) return close();
  if (phase_ == Phase::leaving) buffer_.consume(buffer_.size());
  if (phase_ == Phase::idle && buffer_.size() > 0) return read_head();
  if (!error || phase_ == Phase::idle) watch();
}

// The last answer is out: wait for another request, or begin with the one that is already here.
void Connection::next() {
  phase_ = Phase::idle;
  if (server_.draining) return close();
  if (watching_) {
    if (buffer_.size() > 0) {
      error_code ignored;
      stream_.socket.cancel(ignored);  // on_watched goes on
    }
  } else if (buffer_.size() > 0) {
    return read_head();
  } else {
    watch();
  }
  if (phase_ == Phase::idle) arm(server_.options.idle);
}

// Send an answer, whole or in pieces.
std::string Connection::head(const HttpResponse& response,
                             std::optional<std::size_t> length) const {
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  for (const auto& [name, value] : response.headers) out += fmt::format("{}: {}\r\n", name, value);
  if (length)
    out += fmt::format("content-length: {}\r\n", *length);
  else if (framing_ == Framing::chunks)
    out += "transfer-encoding: chunked\r\n";
  out += keep_alive_ ? "connection: keep-alive\r\n\r\n" : "connection: close\r\n\r\n";
  return out;
}

void Connection::respond(std::uint64_t number, const HttpResponse& response) {
  if (number != request_ || phase_ != Phase::busy || complete_) return;
  if (framing_ != Framing::none) return end(number);  // a stream has begun: it can only end
  constexpr int no_content = 204, not_modified = 304;
  const bool bare = response.status == no_content || response.status == not_modified;
  framing_ = Framing::length;
  put(head(response, bare ? std::nullopt : std::optional(response.body.size())));
  if (!head_only_ && !bare) put(response.body);
  complete_ = true;
  write();
}

void Connection::begin(std::uint64_t number, const HttpResponse& response, std::string heartbeat) {
  if (number != request_ || phase_ != Phase::busy || framing_ != Framing::none) return;
  framing_ = http_1_0_ ? Framing::until_close : Framing::chunks;
  if (http_1_0_) keep_alive_ = false;
  heartbeat_ = std::move(heartbeat);
  put(head(response, std::nullopt));
  write();
}

void Connection::send(std::uint64_t number, const std::string& piece) {
  if (number != request_ || phase_ != Phase::busy || complete_ || piece.empty()) return;
  if (framing_ == Framing::chunks) {
    put(fmt::format("{:x}\r\n", piece.size()));
    put(piece);
    put("\r\n");
  } else {
    put(piece);
  }
  if (unsent_.size() > server_.options.unsent_bytes) {
    ++server_.cut;
    return close();
  }
  write();
}

void Connection::end(std::uint64_t number) {
  if (number != request_ || phase_ != Phase::busy || complete_) return;
  complete_ = true;
  if (framing_ == Framing::chunks) put("0\r\n\r\n");
  write();
}

// Collect while the socket is busy.
void Connection::when_gone(std::uint64_t number, std::function<void()> told) {
  if (number == request_ && phase_ == Phase::busy && !complete_) {
    gone_ = std::move(told);
  } else if (number != request_ || phase_ == Phase::closed) {
    told();
  }
}

void Connection::put(std::string_view bytes) {
  unsent_ += bytes;
  if (phase_ != Phase::busy) write();
}

void Connection::write() {
  if (writing_ || phase_ == Phase::closed) return;
  if (unsent_.empty()) {
    if (phase_ != Phase::busy || !complete_) return;
    --server_.busy;
    gone_ = nullptr;
    if (keep_alive_) return next();
    return say_goodbye();
  }
  writing_ = true;
  sending_.swap(unsent_);
  unsent_.clear();
  sent_ = 0;
  on_written({}, 0);
}

// Closing with unread input would reset the connection, and the answer with it. A read is under way, so TLS must not wait for the
// other side's goodbye with another one: it is told that it has come.
void Connection::say_goodbye() {
  phase_ = Phase::leaving;
  const auto shut = [this] {
    error_code ignored;
    stream_.socket.shutdown(tcp::socket::shutdown_send, ignored);
    watch();
  };
  arm(std::chrono::seconds(1));
  if (!stream_.secure) return shut();
  SSL_set_shutdown(stream_.secure->native_handle(), SSL_RECEIVED_SHUTDOWN);
  stream_.secure->async_shutdown([self = shared_from_this(), shut](error_code) {
    if (self->phase_ == Phase::leaving) shut();
  });
}

void Connection::on_written(error_code error, std::size_t bytes) {
  if (phase_ == Phase::closed) return;
  if (error) return close();
  sent_ += bytes;
  if (sent_ == sending_.size()) {
    writing_ = false;
    sending_.clear();
    if (phase_ == Phase::busy) wait_for_answer();
    return write();
  }
  arm(server_.options.write);
  stream_.async_write_some(
      asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
      [self = shared_from_this()](error_code e, std::size_t n) { self->on_written(e, n); });
}

// End every wait.
void Connection::arm(std::chrono::milliseconds limit) {
  const std::uint64_t number = ++timer_number_;
  timer_.expires_after(limit);
  timer_.async_wait([self = shared_from_this(), number](error_code error) {
    if (!error && number == self->timer_number_ && self->phase_ != Phase::closed)
      self->on_timeout();
  });
}

void Connection::wait_for_answer() {
  if (framing_ == Framing::none || heartbeat_.empty()) {
    ++timer_number_;
    timer_.cancel();
  } else {
    arm(server_.options.heartbeat);
  }
}

void Connection::on_timeout() {
  if (writing_) {
    ++server_.cut;
    return close();
  }
  switch (phase_) {
    case Phase::busy: return send(request_, heartbeat_);
    case Phase::head:
    case Phase::body: return refuse(408, "the request took too long to arrive");
    default: return close();
  }
}

void Connection::close() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::busy) --server_.busy;
  phase_ = Phase::closed;
  timer_.cancel();
  error_code ignored;
  stream_.socket.shutdown(tcp::socket::shutdown_both, ignored);
  stream_.socket.close(ignored);
  if (gone_) std::exchange(gone_, nullptr)();
  server_.closed(shared_from_this());
}

void Connection::leave_early() {
  keep_alive_ = false;
  if (phase_ == Phase::idle) close();
}

}  // namespace

// Accept, count, drain.
void HttpServer::State::accept() {
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (error) {  // out of descriptors, usually: try again when one may have been freed
      auto pause = std::make_shared<asio::steady_timer>(context, std::chrono::milliseconds(50));
      pause->async_wait([this, pause](error_code) { accept(); });
      return;
    }
    if (connections.size() >= options.most_connections) {
      ++refused;
    } else {
      ++accepted;
      auto connection = std::make_shared<Connection>(*this, std::move(socket));
      connections.insert(connection);
      open = connections.size();
      connection->start();
    }
    accept();
  });
}

void HttpServer::State::closed(const std::shared_ptr<Connection>& connection) {
  connections.erase(connection);
  open = connections.size();
  if (draining && connections.empty()) {
    drain_limit.cancel();
    signals.cancel();
    work.reset();
  }
}

void HttpServer::State::begin_drain(std::chrono::milliseconds limit) {
  if (draining.exchange(true)) return;
  error_code ignored;
  acceptor.close(ignored);
  const auto all = connections;
  for (const auto& connection : all) connection->leave_early();
  if (connections.empty()) {
    signals.cancel();
    work.reset();
    return;
  }
  drain_limit.expires_after(limit);
  drain_limit.async_wait([this](error_code error) {
    if (error) return;
    const auto left = connections;
    for (const auto& connection : left) connection->close();
  });
}

// Bind, run, stop.
HttpServer::HttpServer(HttpOptions options, Handler handler)
    : state_(std::make_unique<State>(std::move(options), std::move(handler))) {
  State& s = *state_;
  const auto fail = [&](const char* what, const error_code& error) {
    throw core::Error(core::Code::io, fmt::format("{}: {}", what, error.message()))
        .in(fmt::format("{}:{}", s.options.host, s.options.port))
        .hint("another server may be using the port; --port chooses one, 0 takes any");
  };
  error_code error;
  const auto address =
      asio::ip::make_address(s.options.host == "localhost" ? "127.0.0.1" : s.options.host, error);
  if (error) fail("not an address", error);
  const tcp::endpoint endpoint(address, s.options.port);
  s.acceptor.open(endpoint.protocol());
  s.acceptor.set_option(asio::socket_base::reuse_address(true));
  s.acceptor.bind(endpoint, error);
  if (error) fail("cannot be bound", error);
  s.acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail("cannot listen", error);
}

HttpServer::~HttpServer() {
  for (const auto& connection : std::unordered_set(state_->connections)) connection->close();
}

std::uint16_t HttpServer::port() const {
  return state_->acceptor.local_endpoint().port();
}

HttpCounts HttpServer::counts() const {
  const State& s = *state_;
  return {s.open, s.busy, s.accepted, s.refused, s.cut, s.malformed};
}

void HttpServer::run() {
  State& s = *state_;
  s.work.emplace(s.context.get_executor());
  if (s.terminate) {
    s.signals.add(SIGTERM);
    s.signals.add(SIGINT);
    s.signals.async_wait([&s](error_code error, int) {
      if (!error) s.terminate();
    });
  }
  s.accept();
  s.context.run();
}

void HttpServer::drain(std::chrono::milliseconds limit) {
  asio::post(state_->context, [s = state_.get(), limit] { s->begin_drain(limit); });
}

void HttpServer::on_terminate(std::function<void()> told) {
  state_->terminate = std::move(told);
}

}  // namespace rose::serve
