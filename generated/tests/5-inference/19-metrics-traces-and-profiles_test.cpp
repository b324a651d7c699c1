// Tests of the chapter "Metrics, traces and profiles".

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
#include "rose/core/json.h"
#include "rose/serve/http_server.h"
#include "rose/serve/request_log.h"
#include "rose/serve/span_exporter.h"
#include "rose/serve/trace.h"

namespace rose::serve {
namespace {

// A header is read to the letter, or not at all.
TEST(TraceContext, IsReadToTheLetter) {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto context = TraceContext::parse(good);
  ASSERT_TRUE(context);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(context->header(), good);
  EXPECT_FALSE(TraceContext::parse(good.substr(0, 53) + "02")->sampled);
  EXPECT_TRUE(TraceContext::parse("cc" + good.substr(2) + "-what"));
  for (std::size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(TraceContext::parse(good.substr(0, i)));
    std::string wrong = good;
    wrong[i] = 'G';
    EXPECT_FALSE(TraceContext::parse(wrong)) << wrong;
  }
  EXPECT_FALSE(TraceContext::parse(good + "-what")) << "version 00 ends there";
  EXPECT_FALSE(TraceContext::parse("ff" + good.substr(2)));
  EXPECT_FALSE(TraceContext::parse("00-" + std::string(32, '0') + good.substr(35)));
  EXPECT_FALSE(TraceContext::parse(good.substr(0, 36) + std::string(16, '0') + "-01"));
  EXPECT_EQ(random_hex(16).size(), 16U);
  EXPECT_NE(random_hex(32), random_hex(32));
}

// A collector that fails, and one that never answers.
TEST(SpanExporter, TriesAgainAndNeverHoldsAnybodyUp) {
  std::mutex mutex;
  std::vector<std::string> bodies;
  std::atomic<int> fail{2};
  std::vector<std::shared_ptr<Exchange>> held;
  HttpServer server({}, [&](const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
    const std::scoped_lock lock(mutex);
    if (request.path == "/never") return held.push_back(exchange);
    if (fail-- > 0) return exchange->respond({503, {}, ""});
    bodies.push_back(request.body);
    exchange->respond({200, {}, "{}"});
  });
  std::thread thread([&] { server.run(); });
  const auto url = [&](const char* path) {
    return Url::parse("http://127.0.0.1:" + std::to_string(server.port()) + path);
  };
  const auto spans = [](std::size_t n) {
    return std::vector<Span>(n, {.trace = random_hex(32), .id = random_hex(16), .name = "s"});
  };
  using std::chrono::milliseconds;
  {
    SpanExporter exporter(
        {.endpoint = url("/v1/traces"), .delay = milliseconds(5), .first_wait = milliseconds(2)});
    exporter.add(spans(3));
    for (int i = 0; i < 500 && exporter.exported() < 3; ++i)
      std::this_thread::sleep_for(milliseconds(5));
    EXPECT_EQ(exporter.exported(), 3U);
    exporter.add(spans(2));  // and these go out with it
  }
  const auto start = std::chrono::steady_clock::now();
  {
    SpanExporter stuck({.endpoint = url("/never"),
                        .most_waiting = 10,
                        .most_sent = 4,
                        .delay = milliseconds(1),
                        .timeout = milliseconds(200)});
    for (int i = 0; i < 1000; ++i) stuck.add(spans(1));
    EXPECT_GE(stuck.dropped(), 900U);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  server.drain(milliseconds(0));
  thread.join();
  ASSERT_EQ(bodies.size(), 2U);
  const core::json::value sent = core::parse_json(bodies[0], "body");
  EXPECT_EQ(sent.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").as_array().size(),
            3U);
}

}  // namespace
}  // namespace rose::serve
