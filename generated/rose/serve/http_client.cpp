// Ask another server.

#include "rose/serve/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>

#include "rose/core/error.h"

namespace rose::serve {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Read an address.
constexpr std::uint16_t http_port = 80, https_port = 443;

Url Url::parse(std::string_view text) {
  const auto fail = [&](const char* what) {
    throw core::Error(core::Code::invalid_argument, fmt::format("{} in '{}'", what, text))
        .in("URL")
        .hint("http://HOST[:PORT][/PATH] or https://…");
  };
  Url out;
  constexpr std::string_view plain = "http://", secure = "https://";
  std::string_view rest = text;
  if (rest.starts_with(secure))
    out.tls = true, rest.remove_prefix(secure.size());
  else if (rest.starts_with(plain))
    rest.remove_prefix(plain.size());
  else
    fail("neither http:// nor https://");
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') fail("a space or control character");
  const std::size_t slash = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, slash);
  std::string_view target = rest.substr(slash);
  target = target.substr(0, target.find('#'));
  out.target = target.starts_with('/') ? std::string(target) : "/" + std::string(target);
  if (authority.find('@') != std::string_view::npos) fail("a user");
  out.port = out.tls ? https_port : http_port;
  const std::size_t bracket = authority.starts_with('[') ? authority.find(']') : 0;
  if (bracket == std::string_view::npos) fail("an address without its bracket");
  const std::size_t colon = authority.find(':', bracket);
  if (colon != std::string_view::npos) {
    const std::string_view digits = authority.substr(colon + 1);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), out.port);
    if (error != std::errc{} || end != digits.data() + digits.size() || out.port == 0)
      fail("a port that is none");
    authority = authority.substr(0, colon);
  }
  if (authority.starts_with('[')) {
    if (bracket + 1 != authority.size()) fail("something behind an address in brackets");
    authority = authority.substr(1, authority.size() - 2);
  }
  if (authority.empty()) fail("no host");
  for (const char c : authority)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '_' &&
        c != ':')
      fail("a host that is none");
  out.host = authority;
  return out;
}

std::string Url::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? https_port : http_port) ? name : fmt::format("{}:{}", name, port);
}

std::string Url::text() const {
  return fmt::format("{}://{}{}", tls ? "https" : "http", authority(), target);
}

Url Url::follow(std::string_view location) const {
  if (location.starts_with("//")) return parse((tls ? "https:" : "http:") + std::string(location));
  if (location.starts_with('/')) {
    Url out = *this;
    out.target = location.substr(0, location.find('#'));
    return parse(out.text());
  }
  if (location.find("://") != std::string_view::npos) return parse(location);
  Url out = *this;
  const std::string path = target.substr(0, target.find('?'));
  out.target = path.substr(0, path.rfind('/') + 1) + std::string(location);
  return parse(out.text());  // a stranger wrote it
}

namespace {

// Wait, but not for ever.
class Waiting {
 public:
  Waiting(const Url& url, std::chrono::milliseconds timeout) : url_(url), timeout_(timeout) {}
  /// Runs one operation to its end: start(handler).
  template <class Start>
  error_code run(beast::tcp_stream& stream, const Start& start) {
    error_code result = asio::error::timed_out;
    stream.expires_after(timeout_);
    start([&](error_code error, auto&&...) { result = error; });
    context.restart();
    context.run();
    return result;
  }
  void must(error_code error, const char* doing) const {
    if (!error) return;
    throw core::Error(core::Code::io, fmt::format("{} failed: {}", doing, error.message()))
        .in(fmt::format("{}://{}", url_.tls ? "https" : "http", url_.authority()));
  }
  asio::io_context context{1};

 private:
  const Url& url_;
  std::chrono::milliseconds timeout_;
};

// One request, one answer.
template <class Stream>
Fetched exchange(Waiting& waiting, beast::tcp_stream& lowest, Stream& stream, const Url& url,
                 const FetchOptions& options, const Headers& headers, const Sink* sink) {
  http::request<http::string_body> request(http::string_to_verb(options.method), url.target, 11);
  request.set(http::field::host, url.authority());
  request.set(http::field::user_agent, "rose");
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : headers) request.set(name, value);
  request.body() = options.body;
  request.prepare_payload();
  waiting.must(
      waiting.run(lowest, [&](auto done) { http::async_write(stream, request, std::move(done)); }),
      "sending");
  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  if (options.method == "HEAD") parser.skip(true);
  waiting.must(waiting.run(lowest,
                           [&](auto done) {
                             http::async_read_header(stream, buffer, parser, std::move(done));
                           }),
               "waiting for an answer");
  Fetched out{
      .status = static_cast<int>(parser.get().result_int()), .headers = {}, .body = {}, .url = url};
  for (const auto& field : parser.get()) {
    std::string name(field.name_string().data(), field.name_string().size());
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    out.headers.emplace_back(std::move(name),
                             std::string(field.value().data(), field.value().size()));
  }
  constexpr int ok = 200, partial = 206;
  const bool sunk = sink != nullptr && (out.status == ok || out.status == partial);
  if (sunk && !sink->begin(out)) return out;
  std::array<char, std::size_t{64} << 10> piece{};
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    error_code error = waiting.run(
        lowest, [&](auto done) { http::async_read(stream, buffer, parser, std::move(done)); });
    if (error == http::error::need_buffer) error = {};
    waiting.must(error, "receiving");
    const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
    if (!sunk)
      out.body += got;
    else if (!got.empty() && !sink->piece(got))
      return out;
  }
  return out;
}

}  // namespace

// Connect, greet, ask, follow.
std::string_view Fetched::header(std::string_view name) const {
  const auto found =
      std::ranges::find_if(headers, [&](const auto& field) { return field.first == name; });
  return found == headers.end() ? std::string_view{} : std::string_view(found->second);
}

namespace {

Fetched fetch_one(const Url& url, const FetchOptions& options, const Headers& headers,
                  const Sink* sink) {
  Waiting waiting(url, options.timeout);
  error_code error;
  const auto found =
      tcp::resolver(waiting.context).resolve(url.host, std::to_string(url.port), error);
  waiting.must(error, "looking up the name");
  const auto connect = [&](beast::tcp_stream& stream) {
    waiting.must(waiting.run(stream, [&](auto done) { stream.async_connect(found, done); }),
                 "connecting");
  };
  if (!url.tls) {
    beast::tcp_stream stream(waiting.context);
    connect(stream);
    return exchange(waiting, stream, stream, url, options, headers, sink);
  }
  asio::ssl::context trust(asio::ssl::context::tls_client);
  trust.set_default_verify_paths();
  asio::ssl::stream<beast::tcp_stream> stream(waiting.context, trust);
  stream.set_verify_mode(asio::ssl::verify_peer);
  stream.set_verify_callback(asio::ssl::host_name_verification(url.host));
  SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
  connect(stream.next_layer());
  waiting.must(
      waiting.run(stream.next_layer(),
                  [&](auto done) { stream.async_handshake(asio::ssl::stream_base::client, done); }),
      "the TLS handshake");
  return exchange(waiting, stream.next_layer(), stream, url, options, headers, sink);
}

}  // namespace

Fetched fetch(const Url& url, const FetchOptions& options, const Sink* sink) {
  Url at = url;
  Headers headers = options.headers;
  for (int left = options.redirects;; --left) {
    Fetched out = fetch_one(at, options, headers, sink);
    constexpr std::array moved{301, 302, 303, 307, 308};
    const std::string location(out.header("location"));
    if (location.empty() || std::ranges::find(moved, out.status) == moved.end() || left <= 0)
      return out;
    const Url next = at.follow(location);
    if (at.tls && !next.tls)
      throw core::Error(core::Code::io, "a redirection from https to http is not followed")
          .in(at.text());
    if (next.authority() != at.authority())
      std::erase_if(headers, [](const auto& h) { return h.first == "authorization"; });
    at = next;
  }
}

}  // namespace rose::serve
