// Tests of the chapter "The OpenAI-compatible server".

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
#include "rose/core/rng.h"
#include "rose/core/utf8.h"
#include "rose/serve/answer.h"
#include "rose/serve/answer_json.h"
#include "rose/serve/api.h"
#include "rose/serve/api_error.h"
#include "rose/serve/ask.h"
#include "rose/serve/embeddings.h"
#include "rose/serve/fields.h"
#include "rose/serve/gathering.h"
#include "rose/serve/metrics.h"
#include "rose/serve/model_card.h"
#include "rose/serve/tool_prompt.h"
#include "rose/serve/work_pool.h"
#include "rose/text/detokenizer.h"

namespace rose::serve {
namespace {

// A backend that says what it is told.
class Script final : public Backend {
 public:
  std::string says;
  std::vector<float> vector;
  std::uint64_t cut = 0;  // how the tokens are grouped into events
  std::optional<core::Error> refuses;
  std::size_t lost_after = 1 << 20;  // events
  bool up = true;

  Number submit(Question question, Listener listener) override {
    if (refuses) {
      listener({.kind = Notice::Kind::refused, .error = &*refuses});
      return 1;
    }
    listener({.kind = Notice::Kind::accepted});
    if (question.pooling) {
      const infer::Event e{.finish = infer::Finish::stop, .embedding = vector};
      listener({.kind = Notice::Kind::event, .event = &e});
      return 1;
    }
    for (int choice = 0; choice < question.sampling.n; ++choice) speak(question, choice, listener);
    return 1;
  }
  void cancel(Number) override {}
  std::optional<EngineFacts> facts() const override {
    return up ? std::optional(EngineFacts{}) : std::nullopt;
  }
  infer::Statistics statistics() const override { return {}; }
  void look(Looker told) override { told({}); }

  static text::Tokenizer tokenizer() {
    text::Vocab vocab;
    for (int byte = 0; byte < 256; ++byte) vocab.tokens.emplace_back(1, static_cast<char>(byte));
    return text::Tokenizer(std::move(vocab));
  }

 private:
  void speak(const Question& q, int choice, const Listener& listener) const {
    core::Rng rng(cut, static_cast<std::uint64_t>(choice));
    text::Detokenizer detokenizer(tokenizer());
    std::size_t events = 0;
    for (std::size_t at = 0; at < says.size();) {
      if (events++ == lost_after) {
        const core::Error error(core::Code::io, "the engine was ended by signal 9");
        return listener({.kind = Notice::Kind::lost, .error = &error});
      }
      const std::size_t n = std::min<std::size_t>(says.size() - at, 1 + rng.below(4));
      std::vector<std::int32_t> tokens;
      std::vector<float> logprobs;
      std::string text;
      for (std::size_t i = at; i < at + n; ++i) {
        tokens.push_back(static_cast<unsigned char>(says[i]));
        logprobs.push_back(-static_cast<float>(i + 1));
        text += detokenizer.push(tokens.back());
      }
      at += n;
      if (at == says.size()) text += detokenizer.finish();
      infer::Event e{.choice = choice, .tokens = tokens, .text = text};
      if (q.sampling.logprobs >= 0) e.logprobs = logprobs;
      if (at == says.size()) e.finish = infer::Finish::stop;
      e.usage = {static_cast<std::int64_t>(q.prompt.size()), 0, static_cast<std::int64_t>(at)};
      listener({.kind = Notice::Kind::event, .event = &e});
    }
  }
};

// Ask an API without a network.
class Ear final : public Exchange {
 public:
  void respond(HttpResponse r) override { done(r.status, std::move(r.headers), std::move(r.body)); }
  void begin(HttpResponse head, std::string) override { status = head.status; }
  void send(std::string piece) override {
    const std::scoped_lock lock(mutex);
    body += piece;
  }
  void end() override { done(status, {}, ""); }
  void when_gone(std::function<void()>) override {}
  void wait() {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(5), [&] { return over; }));
  }
  int status = 0;
  Headers headers;
  std::string body;

 private:
  void done(int s, Headers h, std::string text) {
    const std::scoped_lock lock(mutex);
    status = s, headers = std::move(h), body += text, over = true;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
};

class ApiTest : public ::testing::Test {
 protected:
  static ModelCard card() {
    ModelCard c{.name = "m", .aliases = {}, .tokenizer = Script::tokenizer()};
    c.chat.emplace("{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}");
    c.positions = 4096, c.vocab = 256;
    return c;
  }
  std::shared_ptr<Ear> ask(const std::string& path, const json::object& body) {
    auto ear = std::make_shared<Ear>();
    api.handle({"POST", path, "", {{"x-request-id", "id"}}, json::serialize(body), "", true}, ear);
    ear->wait();
    return ear;
  }
  Script script;
  Api api{card(), script, {}};
};

std::vector<json::object> chunks(const std::string& stream) {
  std::vector<json::object> out;
  for (std::size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; ++at)
    out.push_back(
        core::parse_json(std::string_view(stream).substr(at + 6, stream.find("\n\n", at) - at - 6),
                         "chunk")
            .as_object());
  return out;
}

// The deltas of a stream add up to the whole answer.
TEST_F(ApiTest, DeltasAddUpToTheWhole) {
  const std::string call =
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"ü\"}}</tool_call>";
  const std::vector<std::string> texts = {"Grüße 👍 中", "a  b\n", "\xf0\x9f\x91",
                                          "<think>so</think>\n" + call + "\n" + call,
                                          "<tool_call>{\"nam"};
  for (const std::string& text : texts) {
    script.says = text;
    json::object body{{"messages", {{{"role", "user"}, {"content", "x"}}}},
                      {"logprobs", true},
                      {"n", 2},
                      {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}};
    const json::object whole =
        core::parse_json(ask("/v1/chat/completions", body)->body, "whole").as_object();
    body["stream"] = true;
    for (script.cut = 0; script.cut < 20; ++script.cut) {
      std::array<std::string, 2> content, thought, finish;
      std::array<std::vector<std::pair<std::string, std::string>>, 2> calls;
      std::array<json::array, 2> logprobs;
      const auto ear = ask("/v1/chat/completions", body);
      EXPECT_TRUE(ear->body.ends_with("data: [DONE]\n\n"));
      EXPECT_TRUE(core::is_utf8(ear->body));
      for (const json::object& chunk : chunks(ear->body)) {
        const json::object& choice = chunk.at("choices").at(0).as_object();
        const auto i = choice.at("index").to_number<std::size_t>();
        const json::object& delta = choice.at("delta").as_object();
        if (const auto* c = core::find(delta, "content")) content[i] += c->as_string();
        if (const auto* c = core::find(delta, "reasoning_content")) thought[i] += c->as_string();
        if (const auto* c = core::find(choice, "finish_reason")) finish[i] += c->as_string();
        if (const auto* l = core::find(choice, "logprobs"))
          for (const json::value& one : l->at("content").as_array()) logprobs[i].push_back(one);
        if (const auto* list = core::find(delta, "tool_calls"))
          for (const json::value& one : list->as_array()) {
            const auto k = one.at("index").to_number<std::size_t>();
            if (k >= calls[i].size()) calls[i].resize(k + 1);
            if (const auto* name = core::find(one.at("function").as_object(), "name"))
              calls[i][k].first += name->as_string();
            calls[i][k].second += one.at("function").at("arguments").as_string();
          }
      }
      for (std::size_t i = 0; i < 2; ++i) {
        const json::object& choice = whole.at("choices").at(i).as_object();
        const json::object& message = choice.at("message").as_object();
        EXPECT_EQ(content[i], core::get_string_or(message, "content", "", "message"));
        EXPECT_EQ(thought[i], core::get_string_or(message, "reasoning_content", "", "message"));
        EXPECT_EQ(finish[i], choice.at("finish_reason").as_string());
        EXPECT_EQ(json::value(logprobs[i]), choice.at("logprobs").at("content"));
        const json::value* said = core::find(message, "tool_calls");
        ASSERT_EQ(calls[i].size(), said != nullptr ? said->as_array().size() : 0);
        for (std::size_t k = 0; k < calls[i].size(); ++k) {
          EXPECT_EQ(calls[i][k].first, said->at(k).at("function").at("name").as_string());
          EXPECT_EQ(calls[i][k].second, said->at(k).at("function").at("arguments").as_string());
        }
      }
    }
  }
}

// Refusals have a status, failures in a stream an event.
TEST_F(ApiTest, RefusesBeforeTheHeadAndFailsAfterIt) {
  script.says = "some words";
  const json::object body{{"prompt", "x"}, {"stream", true}};
  script.refuses =
      core::Error(core::Code::resource_exhausted, "256 requests are waiting already").in("engine");
  auto ear = ask("/v1/completions", body);
  EXPECT_EQ(ear->status, 429);
  EXPECT_THAT(ear->headers, ::testing::Contains(::testing::Pair("retry-after", "1")));
  script.refuses = core::Error(core::Code::invalid_argument, "not a schema").in("response_format");
  ear = ask("/v1/completions", body);
  EXPECT_EQ(ear->status, 400);
  EXPECT_THAT(ear->body, ::testing::HasSubstr(R"("param":"response_format")"));
  script.refuses.reset();
  script.lost_after = 2;
  ear = ask("/v1/completions", body);
  EXPECT_EQ(ear->status, 200);
  EXPECT_EQ(chunks(ear->body).back().at("error").at("code").as_string(), "engine_unavailable");
  EXPECT_EQ(ear->body.find("[DONE]"), std::string::npos);
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "x"}})->status, 503);
  script.up = false;
  EXPECT_EQ(ask("/v1/completions", {{"prompt", "x"}})->status, 503);
  EXPECT_EQ(ask("/tokenize", {{"prompt", "x"}})->status, 200);
}

// A vector comes through the API with its bits.
TEST_F(ApiTest, EmbeddingsKeepTheirBits) {
  const std::vector<float> values{1.0f, -2.5f, 0.1f};
  script.vector = values;
  auto ear = ask("/v1/embeddings", {{"input", {"ab", "c"}}, {"encoding_format", "base64"}});
  EXPECT_EQ(ear->status, 200);
  json::object body = core::parse_json(ear->body, "answer").as_object();
  EXPECT_EQ(body.at("data").at(1).at("index").to_number<int>(), 1);
  EXPECT_EQ(body.at("data").at(1).at("embedding").as_string(), "AACAPwAAIMDNzMw9");
  EXPECT_EQ(body.at("usage").at("prompt_tokens").to_number<int>(), 3);
  body = core::parse_json(ask("/v1/embeddings", {{"input", "ab"}})->body, "answer").as_object();
  EXPECT_EQ(json::value_to<std::vector<float>>(body.at("data").at(0).at("embedding")), values);
  EXPECT_EQ(ask("/v1/embeddings", {{"input", "ab"}, {"dimensions", 3}})->status, 200);
  ear = ask("/v1/embeddings", {{"input", "ab"}, {"dimensions", 2}});
  EXPECT_EQ(ear->status, 400);
  EXPECT_THAT(ear->body, ::testing::HasSubstr(R"("param":"dimensions")"));
  EXPECT_EQ(ask("/v1/embeddings", {{"input", ""}})->status, 400);
  EXPECT_EQ(ask("/v1/embeddings", {{"input", {1, 256}}})->status, 400);
  script.refuses =
      core::Error(core::Code::resource_exhausted, "256 requests are waiting already").in("engine");
  EXPECT_EQ(ask("/v1/embeddings", {{"input", {"a", "b"}}})->status, 429);
}

}  // namespace
}  // namespace rose::serve
