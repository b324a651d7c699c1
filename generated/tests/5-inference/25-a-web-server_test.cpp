// Tests of the chapter "A web server that nobody can hold up".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/serve/http.h"
#include "rose/serve/http_server.h"
#include "rose/serve/static_files.h"

namespace rose::serve {
namespace {

// A server to attack.
class Attack : public ::testing::Test {
 protected:
  static HttpOptions short_waits() {
    HttpOptions o;
    using std::chrono::milliseconds;
    o.idle = milliseconds(400), o.head = milliseconds(150), o.body = milliseconds(150);
    o.write = milliseconds(200), o.heartbeat = milliseconds(50);
    o.head_bytes = 2048, o.body_bytes = 4096, o.unsent_bytes = 1 << 16;
    return o;
  }
  explicit Attack(HttpOptions options = short_waits())
      : server(std::move(options),
               [this](HttpRequest r, std::shared_ptr<Exchange> e) {
                 handle(std::move(r), std::move(e));
               }),
        thread([this] { server.run(); }) {}
  ~Attack() override {
    server.drain(std::chrono::milliseconds(100));
    thread.join();
    held.clear();
  }
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
    if (request.path == "/never" || request.path == "/stream" || request.path == "/flood") {
      exchange->when_gone([this] { ++gone; });
      if (request.path != "/never")
        exchange->begin({200, {{"content-type", "text/event-stream"}}, ""}, ": beat\n\n");
      if (request.path == "/flood")
        for (int i = 0; i < 2000; ++i) exchange->send(std::string(1000, 'x'));
      held.push_back(std::move(exchange));
    } else if (request.path == "/dropped") {
      exchange.reset();
    } else {
      exchange->respond(
          {200,
           {},
           request.method + " " + request.path + "?" + request.query + " " + request.body});
    }
  }
  std::vector<std::shared_ptr<Exchange>> held;
  std::atomic<int> gone{0};
  HttpServer server;
  std::thread thread;
};

// A client that may misbehave.
class Client {
 public:
  explicit Client(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0)
      throw std::runtime_error("connect");
    timeval wait{3, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  }
  ~Client() { leave(); }
  void leave() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void say(std::string_view text) const {
    std::ignore = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  std::string hear() {  // one read; empty at the end
    std::array<char, 4096> piece{};
    const ssize_t n = ::recv(socket_, piece.data(), piece.size(), 0);
    if (n < 0) ADD_FAILURE() << "nothing came for three seconds";
    return {piece.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }
  std::string hear_all() {
    std::string all;
    for (std::string piece = hear(); !piece.empty(); piece = hear()) all += piece;
    return all;
  }
  std::string hear_until(std::string_view end) {
    std::string all;
    while (!all.ends_with(end)) {
      const std::string piece = hear();
      if (piece.empty()) break;
      all += piece;
    }
    return all;
  }

 private:
  int socket_;
};

// Requests on one connection are answered in order, however their bytes arrive.
TEST_F(Attack, KeepsTheConnectionAndTheOrder) {
  Client client(server.port());
  client.say("GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client.hear_until("GET /a?x=1 ").starts_with("HTTP/1.1 200 OK\r\n"));
  client.say(
      "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nonePOST /c HTTP/1.1\r\nHost: h\r\n"
      "Transfer-Encoding: chunked\r\n\r\n2\r\ntw\r\n1\r\no\r\n0\r\n\r\n");  // two at once
  const std::string both = client.hear_until("POST /c? two");
  EXPECT_NE(both.find("POST /b? one"), std::string::npos);
  EXPECT_LT(both.find("/b"), both.find("/c"));
}

TEST_F(Attack, AByteAtATimeIsARequestToo) {
  Client client(server.port());
  for (const char c : std::string("PUT /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok"))
    client.say({&c, 1});
  EXPECT_NE(client.hear_until("PUT /slow? ok").find(" 200 "), std::string::npos);
}

TEST_F(Attack, AnExchangeThatIsDroppedIsAnswered) {
  Client client(server.port());
  client.say("GET /dropped HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.hear_all().starts_with("HTTP/1.1 500 "));
}

// What two programs could read differently is refused.
TEST_F(Attack, RefusesWhatCouldBeReadTwoWays) {
  const std::vector<std::string> attacks = {
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: "
      "chunked\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: "
      "4\r\n\r\n0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x4\r\n\r\nabcd",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabcd\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nBad Name: x\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\nX : y\r\n\r\n",
      "GET /\x01 HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET / HTTP/9.9\r\nHost: h\r\n\r\n",
      "nonsense\r\n\r\n",
      std::string("GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", 35)};
  for (const std::string& attack : attacks) {
    Client client(server.port());
    client.say(attack);
    const std::string answer = client.hear_all();  // to the end: the connection is not used again
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << attack << "\n-> " << answer;
    EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << "answered twice: " << attack;
  }
  EXPECT_EQ(server.counts().malformed, attacks.size());
}

TEST_F(Attack, RefusesTooMuch) {
  const auto ask = [&](const std::string& text) {
    Client client(server.port());
    client.say(text);
    return client.hear_all().substr(0, 12);
  };
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(5000, 'x') + "\r\n\r\n"),
            "HTTP/1.1 431");
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n"), "HTTP/1.1 413");
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n" +
                std::string(0x2000, 'x')),
            "HTTP/1.1 413");
}

// No wait is without end, and no departure without notice.
TEST_F(Attack, EndsEveryWait) {
  Client idle(server.port()), head(server.port()), body(server.port());
  head.say("GET / HTTP/1.1\r\nHo");
  body.say("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nonly this");
  EXPECT_TRUE(head.hear_all().starts_with("HTTP/1.1 408 "));
  EXPECT_TRUE(body.hear_all().starts_with("HTTP/1.1 408 "));
  EXPECT_EQ(idle.hear_all(), "");
}

TEST_F(Attack, TellsTheHandlerThatTheClientHasGone) {
  Client waiting(server.port()), streaming(server.port());
  waiting.say("GET /never HTTP/1.1\r\nHost: h\r\n\r\n");
  streaming.say("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(streaming.hear_until(": beat\n\n\r\n").find("transfer-encoding: chunked"),
            std::string::npos);  // kept alive meanwhile
  waiting.leave();
  streaming.leave();
  for (int i = 0; i < 300 && gone < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(gone, 2);
  EXPECT_EQ(server.counts().busy, 0U);
}

TEST_F(Attack, CutsAReaderThatNeverReads) {
  Client lazy(server.port()), other(server.port());
  lazy.say("GET /flood HTTP/1.1\r\nHost: h\r\n\r\n");
  for (int i = 0; i < 300 && gone < 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(gone, 1);
  EXPECT_EQ(server.counts().cut, 1U);
  other.say("GET /other HTTP/1.1\r\nHost: h\r\n\r\n");  // and nobody else has noticed
  EXPECT_NE(other.hear_until("GET /other? ").find(" 200 "), std::string::npos);
}

// Files come whole, in part, or not at all, and only from their folder.
TEST(StaticFiles, ServesTheFolderAndNothingElse) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("rose-static-" + std::to_string(getpid()));
  fs::create_directories(root / "site/part");
  core::write_file_atomic(root / "secret", "secret");
  core::write_file_atomic(root / "site/index.html", "0123456789");
  core::write_file_atomic(root / "site/part/a b.css", "c");
  fs::create_symlink(root / "secret", root / "site/link");
  const StaticFiles files(root / "site");
  const auto get = [&](std::string path, Headers headers = {}) {
    return files.get({"GET", std::move(path), "", std::move(headers), "", "", true});
  };
  EXPECT_EQ(get("/")->body, "0123456789");
  EXPECT_EQ(get("/part")->status, 301);
  EXPECT_EQ(get("/part/a%20b.css")->body, "c");
  const std::string etag = get("/index.html")->headers[0].second;
  EXPECT_EQ(get("/", {{"if-none-match", etag}})->status, 304);
  EXPECT_EQ(get("/", {{"range", "bytes=2-4"}})->body, "234");
  EXPECT_EQ(get("/", {{"range", "bytes=8-99"}})->body, "89");
  EXPECT_EQ(get("/", {{"range", "bytes=-3"}})->body, "789");
  EXPECT_EQ(get("/", {{"range", "bytes=10-"}})->status, 416);
  EXPECT_EQ(get("/", {{"range", "bytes=5-2"}})->status, 200);
  EXPECT_EQ(get("/", {{"range", "bytes=2-4"}, {"if-range", "\"old\""}})->status, 200);
  for (const char* path : {"/../secret", "/part/../../secret", "/%2e%2e/secret", "/..%2fsecret",
                           "/%2e%2e%2fsecret", "/link", "//etc/passwd", "/etc/passwd", "/part",
                           "/none", "/%", "/%zz", "/a%00b", "/..\\secret", "/%ff", ""}) {
    const auto answer = get(path);
    EXPECT_TRUE(!answer || answer->status == 301 || answer->body == "0123456789") << path;
    EXPECT_FALSE(answer && answer->body.find("secret") != std::string::npos) << path;
  }
  fs::remove_all(root);
}

}  // namespace
}  // namespace rose::serve
