// Tests of the chapter "HTTP from the other side, and TLS".

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

#include "rose/core/error.h"
#include "rose/serve/http_client.h"
#include "rose/serve/http_server.h"

namespace rose::serve {
namespace {

// Whole answers, long ones, and those that are cut.
class Asked : public ::testing::Test {
 protected:
  void handle(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    if (request.path == "/moved")
      exchange->respond({302, {{"location", "/there?x=1"}}, ""});
    else if (request.path == "/long")
      exchange->respond({200, {}, std::string(1'000'000, 'x')});
    else if (request.path == "/never")
      held.push_back(exchange);
    else
      exchange->respond({200,
                         {{"X-Seen", std::string(request.header("authorization"))}},
                         request.method + request.path + request.query + request.body});
  }
  std::vector<std::shared_ptr<Exchange>> held;
  HttpServer server{{},
                    [this](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
                      handle(request, exchange);
                    }};
  std::thread thread{[this] { server.run(); }};
  Url url = Url::parse("http://127.0.0.1:" + std::to_string(server.port()) + "/echo");
  ~Asked() override {
    server.drain(std::chrono::milliseconds(0));
    thread.join();
  }
};

TEST_F(Asked, BringsWhatIsThere) {
  const Fetched one =
      fetch(url, {.method = "POST", .body = "hello", .headers = {{"authorization", "Bearer k"}}});
  EXPECT_EQ(one.body, "POST/echohello");
  EXPECT_EQ(one.header("x-seen"), "Bearer k");
  EXPECT_EQ(fetch(url.follow("/moved")).status, 302);
  EXPECT_EQ(fetch(url.follow("/moved"), {.redirects = 3}).body, "GET/therex=1");
  std::size_t bytes = 0;
  Sink sink{[](const Fetched& head) { return head.header("content-length") == "1000000"; },
            [&](std::string_view piece) {
              bytes += piece.size();
              return true;
            }};
  EXPECT_TRUE(fetch(url.follow("/long"), {}, &sink).body.empty());
  EXPECT_EQ(bytes, 1'000'000U);
  sink.piece = [&](std::string_view) { return false; };
  EXPECT_EQ(fetch(url.follow("/long"), {}, &sink).status, 200);
  EXPECT_THROW(fetch(url.follow("/never"), {.timeout = std::chrono::milliseconds(50)}),
               core::Error);
  Url closed = url;
  closed.port = 1;
  EXPECT_THROW(fetch(closed), core::Error);
}

TEST(Url, IsReadOrRefused) {
  const Url url = Url::parse("https://[::1]:8443/a/b?c#d");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.text(), "https://[::1]:8443/a/b?c");
  EXPECT_EQ(url.follow("x?y").target, "/a/x?y");
  EXPECT_EQ(url.follow("http://h").text(), "http://h/");
  EXPECT_EQ(url.follow("//h/p").text(), "https://h/p");
  EXPECT_EQ(Url::parse("http://h?q").target, "/?q");
  for (const char* wrong : {"", "h", "ftp://h", "http://", "http://:80", "http://u@h", "http://h:0",
                            "http://h:x", "http://h:99999", "http://h /", "http://[::1"})
    EXPECT_THROW(Url::parse(wrong), core::Error) << wrong;
}

}  // namespace
}  // namespace rose::serve
