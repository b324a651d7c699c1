// Tests of the chapter "Benchmarking a server honestly".

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

#include <fmt/format.h>

#include "labs/inference/serving.h"
#include "rose/core/error.h"
#include "rose/serve/bench_client.h"
#include "rose/serve/bench_plan.h"
#include "rose/serve/bench_plot.h"
#include "rose/serve/bench_reading.h"
#include "rose/serve/bench_report.h"
#include "rose/serve/bench_servers.h"
#include "rose/serve/http_server.h"

namespace rose::serve {
namespace {

// A load is what was asked for, and the same every time.
TEST(BenchPlan, IsWhatWasAskedForAndTheSameEveryTime) {
  Workload w{.arrivals = Arrivals::poisson, .rate = 4.0, .requests = 20'000};
  w.prompt = LengthLaw::parse("1:3"), w.answer = LengthLaw::parse("lognormal:100:0.5:1000");
  const auto plan = plan_load(w), again = plan_load(w);
  double sum = 0, squares = 0, logs = 0;
  std::array<int, 4> lengths{};
  for (std::size_t i = 1; i < plan.size(); ++i) {
    const double wait = plan[i].due - plan[i - 1].due;
    sum += wait, squares += wait * wait;
    logs += std::log(static_cast<double>(plan[i].turns[0].answer));
    ++lengths.at(plan[i].turns[0].tokens.size());
    ASSERT_EQ(plan[i].due, again[i].due);
    ASSERT_EQ(plan[i].turns[0].tokens, again[i].turns[0].tokens);
  }
  const double n = static_cast<double>(plan.size() - 1), mean = sum / n;
  EXPECT_NEAR(mean, 0.25, 5 * 0.25 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n - mean * mean), 0.25, 0.02);
  EXPECT_NEAR(std::exp(logs / n), 100.0, 5 * 100 * 0.5 / std::sqrt(n) + 0.5);
  for (int length = 1; length <= 3; ++length) EXPECT_NEAR(lengths.at(length), n / 3, 400);
  w.requests = 10;
  w.rate = 8.0;
  EXPECT_EQ(plan_load(w)[9].turns[0].tokens, plan[9].turns[0].tokens);  // another rate, same words
  w.salt = 1;
  EXPECT_NE(plan_load(w)[9].turns[0].tokens, plan[9].turns[0].tokens);
  EXPECT_EQ(plan_load(w)[9].turns[0].answer, plan[9].turns[0].answer);
  w.prefix_groups = 2, w.prefix_tokens = 6, w.turns = LengthLaw(3);
  std::set<std::vector<std::int32_t>> beginnings;
  for (const PlannedTalk& talk : plan_load(w)) {
    ASSERT_EQ(talk.turns.size(), 3);
    const auto& t = talk.turns[0].tokens;
    beginnings.insert(std::vector(t.begin(), t.begin() + 6));
  }
  EXPECT_EQ(beginnings.size(), 2);
  for (const char* bad : {"", "0", "5:2", "a", "1:2:3", "lognormal:5", "7x"})
    EXPECT_THROW(LengthLaw::parse(bad), core::Error) << bad;
}

TEST(BenchPlan, ATraceSharesWhatTheRealOneShared) {
  const std::string file = ::testing::TempDir() + "rose_bench_trace.jsonl";
  std::ofstream(file)
      << R"({"timestamp": 500, "input_length": 7, "output_length": 3, "hash_ids": [4, 9]}
{"timestamp": 0, "input_length": 6, "output_length": 2, "hash_ids": [4, 5]}
)";
  Workload w{.arrivals = Arrivals::trace};
  w.trace = file, w.trace_block = 4, w.trace_speed = 2.0;
  const auto plan = plan_load(w);
  ASSERT_EQ(plan.size(), 2);
  EXPECT_EQ(plan[0].due, 0.0);
  EXPECT_EQ(plan[1].due, 0.25);
  const auto &a = plan[0].turns[0].tokens, &b = plan[1].turns[0].tokens;
  EXPECT_EQ(a.size(), 6);
  EXPECT_EQ(b.size(), 7);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 4, b.begin()));
  EXPECT_NE(a[4], b[4]);
  EXPECT_EQ(plan[1].turns[0].answer, 3);
}

// Latencies are of tokens, however the stream is cut.
Observation written_down(std::initializer_list<std::pair<double, std::string>> events, bool usage) {
  Observation o{.status = 200};
  std::int64_t sent = 0;
  for (const auto& [at, text] : events) {
    sent += static_cast<std::int64_t>(text.size());
    json::object event{{"choices", {json::object{{"text", text}, {"finish_reason", nullptr}}}}};
    if (usage) event["usage"] = json::object{{"completion_tokens", sent}, {"prompt_tokens", 9}};
    o.body += ": a comment\ndata: " + json::serialize(event) + "\r\n\r\n";
    o.pieces.push_back({at, o.body.size() - 1});  // its last byte comes with the next piece
  }
  o.body += fmt::format(
      "data: {{\"choices\":[],\"usage\":{{\"completion_tokens\":{}}}}}\n\ndata: [DONE]\n\n", sent);
  o.end = 0.151;
  o.pieces.push_back({o.end, o.body.size()});
  return o;
}

TEST(BenchReading, LatenciesAreOfTokensHoweverTheStreamIsCut) {
  Observation o = written_down({{0.09, "a"}, {0.1, "bc"}, {0.13, "d"}, {0.15, ""}}, true);
  Measured m = read_answer(o);
  ASSERT_EQ(m.error, "");
  EXPECT_TRUE(m.exact);
  EXPECT_EQ(m.completion, 4);
  EXPECT_EQ(m.prompt, 9);
  EXPECT_DOUBLE_EQ(m.ttft(), 0.1);  // the piece that completed the event
  EXPECT_DOUBLE_EQ(m.tpot(), (0.15 - 0.1) / 3);
  EXPECT_THAT(m.gaps(),
              ::testing::ElementsAre(::testing::DoubleEq(0.03), ::testing::DoubleEq(0.15 - 0.13)));
  const auto waits = m.token_waits();
  ASSERT_EQ(waits.size(), 3);
  EXPECT_DOUBLE_EQ(waits[0], 0.015);
  EXPECT_NEAR((waits[0] + waits[1] + waits[2]) / 3, m.tpot(), 1e-12);
  EXPECT_FALSE(read_answer(written_down({{0.1, "a"}, {0.2, "bc"}}, false)).exact);
  EXPECT_TRUE(read_answer(written_down({{0.1, "a"}, {0.2, "b"}}, false)).exact);
}

TEST(BenchReading, KnowsADialectByItsFieldsAndAFailureByItsKind) {
  Observation o{.status = 200};
  o.end = 3;
  o.body =
      R"(data: {"choices":[{"delta":{"content":"x"},"finish_reason":null}],"timings":{"predicted_n":1}}

data: {"choices":[{"delta":{"content":"yz"},"finish_reason":null}],"timings":{"predicted_n":3}}

data: {"choices":[{"delta":{"content":"u"},"token_ids":[5],"finish_reason":"length"}]}

)";
  o.pieces = {{1.0, o.body.size()}};
  EXPECT_EQ(read_answer(o).completion, 4);
  EXPECT_EQ(read_answer(o).text, "xyzu");
  o.body.resize(o.body.size() - 120);
  EXPECT_EQ(read_answer(o).error, "the stream ended too early");
  o.body = "data: {\"error\":{}}\n\n";
  EXPECT_EQ(read_answer(o).error, "an error in the stream");
  o.body = "data: {]\n\n";
  EXPECT_EQ(read_answer(o).error, "an event that is no JSON");
  o.status = 429;
  EXPECT_EQ(read_answer(o).error, "status 429");
  o.error = "timeout";
  EXPECT_EQ(read_answer(o).error, "timeout");
}

// The client agrees with the server's own clock to a millisecond.
using Ticks = std::chrono::steady_clock;

// Answers with `tokens` of the request's number, at a pace, and writes down when.
class Mock {
 public:
  Mock()
      : server_({},
                [this](HttpRequest r, std::shared_ptr<Exchange> e) { answer(r, std::move(e)); }),
        thread_([this] { server_.run(); }) {}
  ~Mock() {
    server_.drain(std::chrono::milliseconds(100));
    thread_.join();
    for (std::thread& t : answers_) t.join();
  }
  std::uint16_t port() const { return server_.port(); }
  std::vector<std::vector<Ticks::time_point>>
      sent;  // of each request, in the order of their prompts
  std::vector<Ticks::time_point> arrived;
  std::mutex mutex;

 private:
  void answer(const HttpRequest& request, std::shared_ptr<Exchange> exchange) {
    const json::value body = json::parse(request.body);
    const auto number = static_cast<std::size_t>(body.at("prompt").as_array().size() - 1);
    const std::scoped_lock lock(mutex);
    sent.resize(std::max(sent.size(), number + 1)), arrived.resize(sent.size());
    arrived[number] = Ticks::now();
    answers_.emplace_back(
        [this, number, exchange = std::move(exchange), n = body.at("max_tokens").as_int64()] {
          std::this_thread::sleep_for(std::chrono::milliseconds(20 + 5 * number));
          exchange->begin({200, {{"content-type", "text/event-stream"}}, ""}, ": \n\n");
          std::vector<Ticks::time_point> moments;
          for (std::int64_t i = 1; i <= n; ++i) {
            if (i > 1) std::this_thread::sleep_for(std::chrono::milliseconds(i == 3 ? 30 : 8));
            moments.push_back(Ticks::now());
            exchange->send(fmt::format(
                "data: {{\"choices\":[{{\"text\":\"w\"}}],\"usage\":{{\"prompt_tokens\":{},"
                "\"completion_tokens\":{}}}}}\n\n",
                number + 1, i));
          }
          const std::scoped_lock held(mutex);
          sent[number] = std::move(moments);
          exchange->send("data: [DONE]\n\n");
          exchange->end();
        });
  }
  std::vector<std::thread> answers_;
  HttpServer server_;
  std::thread thread_;
};

double median_of(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

// Each token as the mock sent it; the wait before it too.

/// The medians of the disagreements, in seconds: about the first token, about those after it.
void compare_clocks(double& first, double& after) {
  Mock mock;
  Workload w{.arrivals = Arrivals::closed, .concurrency = 4, .requests = 12};
  std::vector<PlannedTalk> plan(12);
  for (std::size_t i = 0; i < plan.size(); ++i)
    plan[i].turns = {{.tokens = std::vector<std::int32_t>(i + 1, 7), .answer = 6}};
  const Target target{.port = mock.port(), .model = "m"};
  const LoadRun run = run_load(target, w, plan);
  ASSERT_EQ(run.observations.size(), 12);
  std::vector<double> waits, firsts;
  for (std::size_t i = 0; i < 12; ++i) {
    const Measured m = read_answer(run.observations[i]);
    ASSERT_EQ(m.error, "");
    ASSERT_TRUE(m.exact);
    ASSERT_EQ(m.completion, 6);
    const auto& sent = mock.sent[i];
    const auto theirs = [&](std::size_t j) {
      return std::chrono::duration<double>(sent[j] - sent[0]).count();
    };
    std::size_t j = 0;
    for (const Arrival& a : m.arrivals) {  // tokens that the network joined arrive with their last
      j += static_cast<std::size_t>(a.tokens);
      waits.push_back(std::fabs(a.at - m.arrivals.front().at - theirs(j - 1)));
    }
    firsts.push_back(
        std::fabs(m.ttft() - std::chrono::duration<double>(sent[0] - mock.arrived[i]).count()));
  }
  first = median_of(firsts), after = median_of(waits);
}

TEST(BenchClient, AgreesWithTheServersOwnClock) {
  constexpr double millisecond = 1e-3;
  constexpr int attempts = 5;  // on a machine that is busy with other things
  double first = 1, after = 1;
  for (int i = 0; i < attempts && (first > millisecond || after > millisecond); ++i)
    compare_clocks(first, after);
  EXPECT_LT(first, millisecond);
  EXPECT_LT(after, millisecond);
}

TEST(BenchClient, CountsFromTheMomentThatWasDue) {
  Mock mock;
  Workload w{.arrivals = Arrivals::constant, .concurrency = 1, .rate = 1000, .requests = 4};
  std::vector<PlannedTalk> plan(4);
  for (std::size_t i = 0; i < plan.size(); ++i)
    plan[i] = {.due = 0.001 * static_cast<double>(i),
               .turns = {{.tokens = std::vector<std::int32_t>(i + 1, 7), .answer = 2}}};
  const LoadRun run = run_load({.port = mock.port(), .model = "m"}, w, plan);
  for (std::size_t i = 1; i < 4; ++i) {  // each waited for the one before, and the wait counts
    const Observation &o = run.observations[i], &before = run.observations[i - 1];
    EXPECT_GE(o.sent, before.end);
    EXPECT_DOUBLE_EQ(o.due, plan[i].due);
    EXPECT_GT(read_answer(o).ttft(), 0.02 + before.end - o.due);
  }
  Workload closed;
  const LoadRun lost = run_load({.port = 1, .model = "m"}, closed, {plan[0]});
  EXPECT_THAT(lost.observations[0].error, ::testing::StartsWith("connect"));
}

// Summaries are those of the samples; files and merges lose nothing.
BenchResult some_result(std::uint64_t seed, double ttft) {
  Workload w{.arrivals = Arrivals::poisson, .rate = 2.0};
  BenchResult r{.label = "rose", .workload = describe(w), .environment = {}, .seeds = {seed}};
  for (int i = 0; i < 10; ++i) {
    const double due = 0.5 * i;
    r.requests.push_back(
        {.due = due,
         .sent = due,
         .end = due + ttft + 0.03,
         .prompt = 5,
         .completion = 4,
         .wanted = 4,
         .arrivals = {{due + ttft, 1}, {due + ttft + 0.01, 2}, {due + ttft + 0.02, 1}},
         .exact = true});
  }
  r.requests.push_back({.error = "status 503", .due = 1, .sent = 1, .end = 1});
  r.seconds = 5.0;
  return r;
}

TEST(BenchReport, SumsUpWhatWasMeasured) {
  EXPECT_DOUBLE_EQ(percentile({1, 2, 3, 4}, 0.9), 3.7);  // numpy.percentile([1, 2, 3, 4], 90)
  const BenchSummary s = summarize(some_result(1, 0.2), Objective::parse("ttft:300,tpot:10"));
  EXPECT_EQ(s.answered, 10);
  EXPECT_EQ(s.good, 10);
  EXPECT_EQ(s.errors.at(0), (std::pair<std::string, std::size_t>{"status 503", 1}));
  EXPECT_NEAR(s.itl.p50, 0.005, 1e-9);
  EXPECT_EQ(s.itl.count, 30);
  EXPECT_EQ(s.gap.count, 20);
  EXPECT_NEAR(s.tpot.mean, 0.02 / 3, 1e-9);
  EXPECT_EQ(summarize(some_result(1, 0.2), Objective::parse("ttft:100")).good, 0);
  EXPECT_THROW(Objective::parse("ttft"), core::Error);
  EXPECT_THROW(Objective::parse("speed:5"), core::Error);
}

TEST(BenchReport, FilesAndMergesLoseNothing) {
  const Objective slo = Objective::parse("ttft:300");
  const std::string file = ::testing::TempDir() + "rose_bench_result.json";
  std::ofstream(file) << results_file({some_result(1, 0.2), some_result(2, 0.4)}, slo);
  auto read = read_results(file);
  ASSERT_EQ(read.size(), 2);
  const auto kept = [&](const BenchResult& r) {
    json::object out = to_json(r, slo);
    out.erase("summary");  // of rounded moments: the last bits differ
    return json::serialize(out);
  };
  EXPECT_EQ(kept(read[0]), kept(some_result(1, 0.2)));
  const auto merged = merge(read);
  ASSERT_EQ(merged.size(), 1);
  const BenchSummary s = summarize(merged[0], slo);
  EXPECT_EQ(s.answered, 20);
  EXPECT_EQ(s.good, 10);
  EXPECT_NEAR(s.ttft.mean, 0.3, 1e-6);
  EXPECT_DOUBLE_EQ(s.seconds, 10.0);
  EXPECT_THROW(merge({some_result(1, 0.2), some_result(1, 0.3)}), core::Error);
  EXPECT_THAT(markdown(merged[0], s), ::testing::HasSubstr("| TTFT | 300.00 | 300.00 |"));
  EXPECT_THAT(markdown_overview(read, slo), ::testing::HasSubstr("| rose | poisson, 2 a second"));
}

}  // namespace
}  // namespace rose::serve
