// Tests of the chapter "The engine".

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

#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <ranges>

#include "labs/counting/allocations.h"
#include "labs/inference/requests.h"
#include "rose/app/engine_batch.h"
#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/delivery.h"
#include "rose/infer/engine.h"
#include "rose/infer/engine_state.h"
#include "rose/infer/runner_drafter.h"
#include "rose/kernels/logprob.h"
#include "rose/model/forward.h"

namespace rose::infer {
namespace {

// A small model, the slow way, and a listener.
std::shared_ptr<model::WeightSet> little(std::uint64_t seed = 3) {
  model::Config c;
  c.vocab_size = 61, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32;
  c.ffn = 48, c.max_positions = 400;
  auto weights = model::random_weights(c, seed);
  for (const model::Parameter& p : weights->parameters())
    for (float& x : p.f32()) x *= p.shape.size() == 2 ? 8.0f : 1.0f;
  weights->set_version(seed);
  return weights;
}

struct Heard {
  std::vector<std::int32_t> tokens, prompt;
  std::vector<float> logprobs, prompt_logprobs;
  std::vector<std::int32_t> top;
  std::vector<std::uint64_t> versions;
  std::optional<Finish> finish;
  std::string error;
  Usage usage;
  int ends = 0;
  bool operator==(const Heard& o) const {
    return tokens == o.tokens && logprobs == o.logprobs && top == o.top && finish == o.finish;
  }
};

/// What each choice of a request was told. Outlives the engine.
using Ears = std::shared_ptr<std::vector<Heard>>;
Ears listen(Request& request) {
  auto ears = std::make_shared<std::vector<Heard>>(
      static_cast<std::size_t>(std::max(request.sampling.n, 1)));
  request.on_event = [ears](const Event& e) {
    Heard& h = (*ears)[static_cast<std::size_t>(e.choice)];
    h.ends += e.finish ? 1 : 0;
    auto& tokens = e.of_prompt ? h.prompt : h.tokens;
    auto& logprobs = e.of_prompt ? h.prompt_logprobs : h.logprobs;
    tokens.insert(tokens.end(), e.tokens.begin(), e.tokens.end());
    logprobs.insert(logprobs.end(), e.logprobs.begin(), e.logprobs.end());
    for (const Alternative& a : e.top) h.top.push_back(a.token);
    if (!e.tokens.empty() && !e.of_prompt) h.versions.push_back(e.weights_version);
    h.finish = e.finish;
    if (e.error != nullptr) h.error = e.error->what();
    h.usage = e.usage;
  };
  return ears;
}

// The slow way.
Request make(std::vector<std::int32_t> prompt, float temperature = 0.9f, std::int64_t tokens = 12) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.temperature = temperature;
  r.sampling.seed = 42;
  r.sampling.max_tokens = tokens;
  r.sampling.ignore_eos = true;
  r.sampling.logprobs = 3;
  return r;
}

std::vector<std::int32_t> random_prompt(core::Rng& rng, std::size_t length) {
  std::vector<std::int32_t> prompt(length);
  for (auto& id : prompt) id = static_cast<std::int32_t>(rng.below(61));
  return prompt;
}

Heard slow_way(const model::WeightSet& weights, const Request& r) {
  model::Workspace ws(weights.config());
  std::vector<std::int32_t> ids = r.prompt;
  std::vector<std::pair<float, std::int32_t>> scratch;
  Heard h;
  while (static_cast<std::int64_t>(h.tokens.size()) < r.sampling.max_tokens) {
    std::vector<std::int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<float> hidden(ids.size() * 32), row(61);
    const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(ids.size())};
    model::forward(weights, {ids, positions, offsets}, nullptr, nullptr, ws, hidden);
    model::logits(weights, std::span(hidden).last(32), 1, ws, row);
    const kernels::SamplingParams params{
        .temperature = r.sampling.temperature, .seed = *r.sampling.seed, .position = ids.size()};
    const std::int32_t token = kernels::sample(row, params, scratch).token;
    float logprob = 0.0f;
    kernels::token_logprob(row, 1, {&token, 1}, {&logprob, 1}, {}, ws.pool());
    ids.push_back(token);
    h.tokens.push_back(token);
    h.logprobs.push_back(logprob);
  }
  return h;
}

// Answer as the slow way does, bit for bit.
Heard alone(std::shared_ptr<const model::WeightSet> weights, Request request,
            CpuRunnerOptions runner = {.max_sequences = 8, .poison = true},
            EngineOptions options = {}) {
  Engine engine(make_cpu_runner(std::move(weights), runner), options);
  const Ears ears = listen(request);
  engine.submit(std::move(request));
  engine.run();
  return ears->at(0);
}

TEST(Engine, AnswersAsTheSlowWayDoes) {
  const auto weights = little();
  core::Rng rng(1);
  for (const float temperature : {0.0f, 0.9f}) {
    for (const std::size_t length : {std::size_t{1}, std::size_t{16}, std::size_t{50}}) {
      const Request request = make(random_prompt(rng, length), temperature);
      const Heard slow = slow_way(*weights, request), fast = alone(weights, request);
      EXPECT_EQ(fast.tokens, slow.tokens);
      EXPECT_EQ(fast.logprobs, slow.logprobs);
      EXPECT_EQ(fast.top.size(), 36u);
      EXPECT_EQ(fast.finish, Finish::length);
      EXPECT_EQ(fast.usage.completion, 12);
      EXPECT_EQ(fast.ends, 1);
    }
  }
}

// The same bits, however they were computed.
struct Guesser final : Drafter {
  std::vector<std::int32_t> truth;  // prompt and answer
  int wrong_every = 3;
  void draft(std::span<const std::int32_t> text, int most,
             std::vector<std::int32_t>& out) override {
    for (std::size_t i = text.size();
         out.size() < static_cast<std::size_t>(most) && i < truth.size(); ++i)
      out.push_back(static_cast<int>(i) % wrong_every == 0 ? 7 : truth[i]);
  }
};

TEST(Engine, AnswersDoNotDependOnHowTheyWereComputed) {
  const auto weights = little();
  core::Rng rng(2);
  Request request = make(random_prompt(rng, 45));
  const Heard plain = alone(weights, request);
  CpuRunnerOptions cpu{.max_sequences = 8, .poison = true};
  for (std::int64_t chunk = 1; chunk <= 46; ++chunk)
    ASSERT_EQ(alone(weights, request, cpu, {.max_chunk = chunk}), plain) << chunk;
  for (const int page : {1, 4, 64}) {
    cpu.page_size = page;
    ASSERT_EQ(alone(weights, request, cpu), plain) << page;
  }
  cpu.page_size = 16;
  ASSERT_EQ(alone(weights, request, cpu, {.overlap = true}), plain);
  ASSERT_EQ(alone(weights, request, cpu, {.max_chunk = 7, .overlap = true}), plain);
  auto guesser = std::make_shared<Guesser>();
  guesser->truth = request.prompt;
  guesser->truth.insert(guesser->truth.end(), plain.tokens.begin(), plain.tokens.end());
  for (guesser->wrong_every = 1; guesser->wrong_every <= 40; guesser->wrong_every += 3)
    ASSERT_EQ(alone(weights, request, cpu, {.drafter = guesser}), plain) << guesser->wrong_every;

  Engine engine(make_cpu_runner(weights, cpu), {.overlap = true});
  for (int warm = 0; warm < 2; ++warm) {
    Request again = request;
    const Ears ears = listen(again);
    engine.submit(std::move(again));
    engine.run();
    EXPECT_EQ(ears->at(0), plain);
    EXPECT_EQ(ears->at(0).usage.cached, warm * 32);
  }
  Request again = request;
  const Ears ears = listen(again);
  engine.submit(std::move(again));
  while (engine.step())
    engine.control().update_weights(weights);  // back to the queue, cache forgotten
  engine.flush();
  EXPECT_EQ(ears->at(0), plain) << "computed again at every step";
  EXPECT_GT(engine.control().statistics().runner_seconds, 0.0);
}

// A thousand copies amid random traffic have one answer.
TEST(Engine, AThousandCopiesHaveOneAnswer) {
  const auto weights = little();
  core::Rng rng(9);
  const Request original = make(random_prompt(rng, 21), 0.8f, 8);
  const Heard plain = alone(weights, original);
  Engine engine(
      make_cpu_runner(
          weights,
          {.max_tokens = 48, .max_sequences = 12, .page_size = 4, .pages = 40, .poison = true}),
      {.policy = AdmissionPolicy::pack, .overlap = true});
  std::vector<Ears> copies;
  for (int i = 0; i < 1'000; ++i) {
    Request copy = original;
    copies.push_back(listen(copy));
    engine.submit(std::move(copy));
    if (i % 2 == 0) {
      Request other = make(random_prompt(rng, 1 + rng.below(60)), 1.0f, 1 + rng.below(20));
      other.sampling.seed = rng.next64();
      if (rng.below(3) == 0)
        std::ranges::copy_n(original.prompt.begin(),
                            std::min<std::ptrdiff_t>(16, std::ssize(other.prompt)),
                            other.prompt.begin());
      if (rng.below(4) == 0) other.sampling.n = 3;
      if (rng.below(4) == 0) other.sampling.presence_penalty = 0.5f;
      const auto handle = engine.submit(std::move(other));
      if (rng.below(5) == 0) engine.cancel(handle);
    }
    engine.step();
  }
  engine.run();
  for (const Ears& ears : copies) ASSERT_EQ(ears->at(0), plain);
  const Statistics s = engine.control().statistics();
  EXPECT_GT(s.preemptions, 20);
  EXPECT_GT(s.prefix.tokens_found, 1'000);
  EXPECT_EQ(s.pages.referenced + s.pages.in_flight, 0);
}

// Four answers to one prompt, computed once.
TEST(Engine, SeveralAnswersShareTheirPrompt) {
  const auto weights = little();
  core::Rng rng(4);
  Request request = make(random_prompt(rng, 37));
  request.sampling.n = 4;
  const auto ask = [&](EngineOptions options, CpuRunnerOptions cpu) {
    Engine engine(make_cpu_runner(weights, cpu), options);
    Request r = request;
    const Ears ears = listen(r);
    engine.submit(std::move(r));
    engine.run();
    EXPECT_EQ(engine.control().statistics().pages.referenced, 0);
    const std::int64_t computed = engine.control().statistics().prompt_tokens;
    EXPECT_TRUE(options.max_chunk > 0 || computed == 37) << computed;
    return *ears;
  };
  const std::vector<Heard> all = ask({}, {.max_sequences = 8, .poison = true});
  std::set<std::vector<std::int32_t>> distinct;
  for (const Heard& h : all) distinct.insert(h.tokens);
  EXPECT_EQ(distinct.size(), 4u);
  Request one = request;
  one.sampling.n = 1;
  EXPECT_EQ(all[0], alone(weights, one)) << "the first choice has the request's seed";
  EXPECT_EQ(
      ask({.max_chunk = 5, .overlap = true}, {.max_sequences = 4, .page_size = 8, .poison = true}),
      all);
  // A pool in which four cannot grow together: choices are preempted and computed again, each from its own tokens.
  EXPECT_EQ(
      ask({.max_chunk = 50}, {.max_sequences = 4, .page_size = 8, .pages = 9, .poison = true}),
      all);
}

// Refuse by name, fail alone.
TEST(Engine, BadRequestsAreRefusedByNameAndHarmNobody) {
  const auto weights = little();
  core::Rng rng(6);
  Engine engine(make_cpu_runner(
      weights,
      {.max_sequences = 4, .positions = 100, .page_size = 4, .pages = 12, .poison = true}));
  Request good = make(random_prompt(rng, 9));
  const Heard plain = alone(weights, good);
  const Ears ears = listen(good);
  engine.submit(std::move(good));
  engine.step();
  const auto complaint = [&](auto&& change) {
    Request r = make({1, 2, 3});
    change(r);
    try {
      engine.submit(r);
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  using testing::HasSubstr;
  EXPECT_THAT(complaint([](Request& r) { r.prompt.clear(); }),
              HasSubstr("prompt: there is nothing"));
  EXPECT_THAT(complaint([](Request& r) { r.prompt.assign(100, 1); }),
              HasSubstr("no room for an answer"));
  EXPECT_THAT(complaint([](Request& r) { r.prompt.assign(60, 1); }),
              HasSubstr("more keys and values than the 12 pages"));
  EXPECT_THAT(complaint([](Request& r) { r.prompt[1] = 61; }), HasSubstr("61 is outside"));
  EXPECT_THAT(complaint([](Request& r) { r.prompt[1] = -1; }), HasSubstr("-1 is outside"));
  EXPECT_THAT(complaint([](Request& r) { r.sampling.max_tokens = 0; }), HasSubstr("max_tokens"));
  EXPECT_THAT(complaint([](Request& r) { r.sampling.n = 5; }), HasSubstr("5 answers at once"));
  EXPECT_THAT(complaint([](Request& r) { r.sampling.top_p = 0.0f; }), HasSubstr("top_p"));
  EXPECT_THAT(complaint([](Request& r) { r.adapter = "x"; }), HasSubstr("adapter"));
  Request large = make(random_prompt(rng, 40), 0.9f, 50);  // outgrows the pool
  const Ears large_ears = listen(large);
  engine.submit(std::move(large));
  engine.run();
  EXPECT_EQ(ears->at(0), plain);
  EXPECT_EQ(large_ears->at(0).finish, Finish::error);
  EXPECT_THAT(large_ears->at(0).error, HasSubstr("49 tokens need more"));
  EXPECT_EQ(engine.control().statistics().pages.referenced, 0);
}

// Contradictions and impossible schemas reach nobody else.
TEST(Engine, ContradictionsAreRefusedByName) {
  Engine engine(make_cpu_runner(little(), {.max_sequences = 4}));
  const auto field = [&](auto&& change) {
    Request r = make({1, 2, 3});
    change(r.sampling);
    try {
      engine.submit(r);
    } catch (const core::Error& error) {
      return error.argument();
    }
    return std::string("accepted");
  };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(field([](Sampling& s) { s.min_tokens = 13; }), "min_tokens");
  EXPECT_EQ(field([](Sampling& s) { s.n = 2, s.temperature = 0.0f; }), "n");
  EXPECT_EQ(field([](Sampling& s) { s.n = 0; }), "n");
  EXPECT_EQ(field([](Sampling& s) { s.n = 1000; }), "n");
  EXPECT_EQ(field([](Sampling& s) { s.temperature = nan; }), "temperature");
  EXPECT_EQ(field([](Sampling& s) { s.temperature = -1.0f; }), "temperature");
  EXPECT_EQ(field([](Sampling& s) { s.top_k = -1; }), "top_k");
  EXPECT_EQ(field([](Sampling& s) { s.min_p = 1.5f; }), "min_p");
  EXPECT_EQ(field([](Sampling& s) { s.presence_penalty = 3.0f; }), "presence_penalty");
  EXPECT_EQ(field([](Sampling& s) { s.repetition_penalty = 0.0f; }), "repetition_penalty");
  EXPECT_EQ(field([](Sampling& s) { s.logprobs = -1, s.processed_logprobs = true; }),
            "processed_logprobs");
  EXPECT_EQ(field([](Sampling& s) { s.logprobs = 21; }), "logprobs");
  EXPECT_EQ(field([](Sampling& s) { s.stop = {""}; }), "stop");
  EXPECT_EQ(field([](Sampling& s) { s.stop_token_ids = {61}; }), "stop_token_ids");
  EXPECT_EQ(field([](Sampling& s) { s.logit_bias = {{5, 1.0f}, {5, 2.0f}}; }), "logit_bias");
  EXPECT_FALSE(engine.step()) << "nobody was let in";
}

// Cancel at any moment; every request hears one end.
TEST(Engine, CancelAtAnyMoment) {
  const auto weights = little();
  core::Rng rng(12);
  std::vector<Ears> all;
  {
    Engine engine(
        make_cpu_runner(
            weights,
            {.max_tokens = 16, .max_sequences = 6, .page_size = 4, .pages = 60, .poison = true}),
        {.overlap = true});
    std::vector<Engine::Handle> handles;
    for (int i = 0; i < 400; ++i) {
      if (rng.below(2) == 0) {
        Request r = make(random_prompt(rng, 1 + rng.below(30)), 1.0f, 1 + rng.below(12));
        if (rng.below(4) == 0) r.sampling.n = 2;
        all.push_back(listen(r));
        handles.push_back(engine.submit(std::move(r)));
      }
      if (!handles.empty() && rng.below(3) == 0)
        engine.cancel(handles[rng.below(static_cast<std::uint32_t>(handles.size()))]);
      engine.step();
    }
    const Statistics s = engine.control().statistics();
    EXPECT_GT(s.cancelled, 20);
    EXPECT_GT(s.running, 0) << "and some are still running when the engine goes";
  }
  for (const Ears& ears : all)
    for (const Heard& h : *ears) ASSERT_EQ(h.ends, 1);
}

// A device fault is an error event, not an exception.
class Faulty : public Runner {
 public:
  Faulty(std::unique_ptr<Runner> inner, int launches) : inner_(std::move(inner)), left_(launches) {}
  const RunnerLimits& limits() const override { return inner_->limits(); }
  const MemoryPlan& memory() const override { return inner_->memory(); }
  std::string_view name() const override { return "faulty"; }
  void launch(const StepInput& step) override {
    if (left_-- == 0) throw core::Error(core::Code::internal, "the device fell off the bus");
    inner_->launch(step);
  }
  StepOutput wait() override { return inner_->wait(); }
  std::shared_ptr<const model::WeightSet> weights() const override { return inner_->weights(); }
  void set_weights(std::shared_ptr<const model::WeightSet> w) override {
    inner_->set_weights(std::move(w));
  }
  void read_pages(std::span<const std::int32_t> p, std::span<std::byte> out) const override {
    inner_->read_pages(p, out);
  }
  std::uint64_t set_adapter(std::int64_t slot, std::shared_ptr<const model::Adapter> a) override {
    return inner_->set_adapter(slot, std::move(a));
  }
  void write_pages(std::span<const std::int32_t> p, std::span<const std::byte> in) override {
    inner_->write_pages(p, in);
  }

 private:
  std::unique_ptr<Runner> inner_;
  int left_;
};

TEST(Engine, ADeviceFaultEndsItsStreamsWithAnError) {
  for (const bool overlap : {false, true}) {
    Engine engine(std::make_unique<Faulty>(make_cpu_runner(little(), {.max_sequences = 4}), 5),
                  {.overlap = overlap});
    std::vector<Ears> all;
    for (int i = 0; i < 6; ++i) {
      Request r = make({1, 2, 3, i});
      all.push_back(listen(r));
      engine.submit(std::move(r));
    }
    engine.run();
    for (const Ears& ears : all) {
      EXPECT_EQ(ears->at(0).finish, Finish::error);
      EXPECT_THAT(ears->at(0).error, testing::HasSubstr("fell off the bus"));
    }
    EXPECT_FALSE(engine.control().healthy());
    EXPECT_THROW(engine.submit(make({1})), core::Error);
  }
}

// Draft with a model, and answer the same.
TEST(Engine, ADraftModelChangesNoAnswer) {
  const auto weights = little();
  core::Rng rng(31);
  std::vector<Request> requests;
  std::vector<Heard> plain;
  for (int i = 0; i < 8; ++i) {
    requests.push_back(make(random_prompt(rng, 3 + rng.below(40)), i % 2 == 0 ? 0.0f : 0.9f, 24));
    if (i % 3 == 0) requests.back().sampling.frequency_penalty = 0.5f;
    plain.push_back(alone(weights, requests.back()));
  }
  struct Case {
    std::uint64_t seed;
    std::int64_t pages;
  };
  for (const Case& c : {Case{3, 0}, {5, 0}, {3, 9}}) {
    const auto drafter =
        std::make_shared<RunnerDrafter>(make_cpu_runner(little(c.seed), {.max_tokens = 24,
                                                                         .max_sequences = 3,
                                                                         .page_size = 8,
                                                                         .pages = c.pages,
                                                                         .poison = true}),
                                        61);
    Engine engine(make_cpu_runner(weights, {.max_sequences = 6, .poison = true}),
                  {.overlap = true, .drafter = drafter, .drafts = 3});
    std::vector<Ears> all;
    for (Request r : requests) {
      all.push_back(listen(r));
      engine.submit(std::move(r));
    }
    engine.run();
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]->at(0), plain[i]) << i;
    const Statistics s = engine.control().statistics();
    EXPECT_GT(s.drafted, 20);
    if (c.seed == 3) {
      EXPECT_EQ(s.drafts_right, s.drafted) << "the model guesses itself";
    }
    if (c.seed == 3 && c.pages == 0) {
      EXPECT_LE(s.steps, 40) << "two turns of 24 tokens without guesses";
      EXPECT_LT(drafter->tokens_computed(), 8 * (43 + 3 * 24)) << "texts are not read again";
    }
  }
  EXPECT_THROW(RunnerDrafter(make_cpu_runner(little(), {.max_sequences = 1}), 62), core::Error);
}

// A step that does not end is given up.
class Hanging final : public Faulty {
 public:
  Hanging(std::unique_ptr<Runner> inner, std::shared_future<void> back)
      : Faulty(std::move(inner), 1'000'000), back_(std::move(back)) {}
  StepOutput wait() override {
    if (++waits_ == 3) back_.wait();
    return Faulty::wait();
  }

 private:
  std::shared_future<void> back_;
  int waits_ = 0;
};

TEST(Engine, AStepThatDoesNotEndIsGivenUp) {
  std::promise<void> back;
  Engine engine(std::make_unique<Hanging>(make_cpu_runner(little(), {.max_sequences = 2}),
                                          back.get_future().share()),
                {.stall_seconds = 0.4});
  std::mutex mutex;
  std::condition_variable changed;
  int errors = 0;
  std::string first;
  const auto ask = [&] {
    Request r = make({1, 2, 3});
    r.on_event = [&](const Event& e) {
      if (!e.finish) return;
      const std::scoped_lock lock(mutex);
      if (*e.finish == Finish::error && e.error->argument() == "runner") ++errors;
      if (first.empty()) first = e.error == nullptr ? "no error" : e.error->what();
      changed.notify_all();
    };
    engine.submit(std::move(r));
  };
  for (int i = 0; i < 4; ++i) ask();
  engine.start();
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return errors == 4; });
  }
  EXPECT_THAT(first, testing::HasSubstr("a step has not ended after 0.4 s"));
  EXPECT_FALSE(engine.control().healthy());
  EXPECT_THROW(ask(), core::Error);
  back.set_value();
  engine.stop();
  EXPECT_EQ(errors, 4);
}

// A grammar in the making holds nobody up.

/// Any text of so many tokens; one more is too much for it.
struct Short final : Grammar {
  explicit Short(int most) : most(most) {}
  struct At final : GrammarState {
    explicit At(int left) : left(left) {}
    bool accept(std::int32_t) override {
      if (left-- == 0)
        throw core::Error(core::Code::resource_exhausted, "too many readings").in("grammar");
      return true;
    }
    void mask(std::span<std::uint32_t> words) override { std::ranges::fill(words, ~0u); }
    bool can_end() const override { return true; }
    bool must_end() const override { return false; }
    std::string forced() const override { return {}; }
    std::unique_ptr<GrammarState> clone() const override { return std::make_unique<At>(left); }
    int left;
  };
  std::unique_ptr<GrammarState> start() const override { return std::make_unique<At>(most); }
  int most;
};

TEST(Engine, AGrammarInTheMakingHoldsNobodyUp) {
  Engine engine(make_cpu_runner(little(), {.max_sequences = 4, .poison = true}));
  std::promise<void> made;
  Request slow = make({1, 2, 3});
  slow.prepare = [ready = made.get_future().share()] {
    ready.wait();
    return std::make_shared<const Short>(100);
  };
  Request quick = make({4, 5, 6});
  const Ears of_slow = listen(slow), of_quick = listen(quick);
  engine.submit(std::move(slow));
  engine.submit(std::move(quick));
  while (engine.step()) {
  }
  engine.flush();
  EXPECT_EQ(of_quick->at(0).finish, Finish::length);
  EXPECT_EQ(of_slow->at(0).ends, 0);
  made.set_value();
  engine.run();
  EXPECT_EQ(of_slow->at(0).finish, Finish::length);
  EXPECT_EQ(of_slow->at(0).tokens, slow_way(*little(), make({1, 2, 3})).tokens);
}

// Grammars fail alone.
TEST(Engine, GrammarsFailAlone) {
  const auto weights = little();
  const Heard plain = alone(weights, make({4, 5, 6}));
  Engine engine(make_cpu_runner(weights, {.max_sequences = 8, .poison = true}));
  std::vector<Ears> all;
  const auto ask = [&](std::function<std::shared_ptr<const Grammar>()> prepare) {
    Request r = make({4, 5, 6});
    r.prepare = std::move(prepare);
    all.push_back(listen(r));
    return engine.submit(std::move(r));
  };
  ask(nullptr);
  ask([]() -> std::shared_ptr<const Grammar> {
    throw core::Error(core::Code::invalid_argument, "no text satisfies it").in("grammar");
  });
  ask([]() -> std::shared_ptr<const Grammar> { throw std::runtime_error("broken"); });
  ask([] { return std::make_shared<const Short>(5); });  // gives up at the sixth token
  std::promise<void> may_begin;
  ask([begins = may_begin.get_future().share()] {
    begins.wait();
    return std::make_shared<const Short>(100);
  });
  engine.cancel(ask([] { return std::make_shared<const Short>(100); }));
  may_begin.set_value();
  engine.run();
  const std::vector<Finish> ends{Finish::length, Finish::error,  Finish::error,
                                 Finish::error,  Finish::length, Finish::cancelled};
  for (std::size_t i = 0; i < ends.size(); ++i) {
    EXPECT_EQ(all[i]->at(0).finish, ends[i]) << i;
    EXPECT_EQ(all[i]->at(0).ends, 1) << i;
  }
  EXPECT_EQ(all[0]->at(0), plain);
  EXPECT_THAT(all[1]->at(0).error, testing::HasSubstr("no text satisfies it"));
  EXPECT_THAT(all[3]->at(0).error, testing::HasSubstr("too many readings"));
  EXPECT_EQ(all[3]->at(0).tokens.size(), 5u);
  EXPECT_TRUE(engine.control().healthy());
  EXPECT_EQ(engine.control().statistics().pages.referenced, 0);
  {  // an engine that goes tells those whose grammars were never made
    Engine other(make_cpu_runner(weights, {.max_sequences = 2}));
    Request r = make({1});
    r.prepare = [] { return std::make_shared<const Short>(9); };
    all.push_back(listen(r));
    other.submit(std::move(r));
  }
  EXPECT_EQ(all.back()->at(0).ends, 1);
}

// Change the weights, move a prefix, score a prompt, drain.
TEST(Engine, TheControlPlane) {
  const auto first = little(3), second = little(8);
  core::Rng rng(5);
  Request request = make(random_prompt(rng, 33));
  Engine engine(make_cpu_runner(first, {.max_sequences = 4, .poison = true}), {.overlap = true});
  Request r = request;
  Ears ears = listen(r);
  engine.submit(std::move(r));
  for (int i = 0; i < 6; ++i) engine.step();
  engine.control().update_weights(second);
  engine.run();
  const Heard& mixed = ears->at(0);
  const auto change = std::ranges::find(mixed.versions, 8u) - mixed.versions.begin();
  ASSERT_GT(change, 2);
  ASSERT_LT(change, 11);
  const std::vector<std::int32_t> before = slow_way(*first, request).tokens;
  EXPECT_TRUE(std::equal(mixed.tokens.begin(), mixed.tokens.begin() + change, before.begin()));
  Request rest = request;
  rest.prompt.insert(rest.prompt.end(), mixed.tokens.begin(), mixed.tokens.begin() + change);
  rest.sampling.max_tokens -= change;
  EXPECT_EQ(std::vector(mixed.tokens.begin() + change, mixed.tokens.end()),
            slow_way(*second, rest).tokens);

  const KvExport prefix = engine.control().export_prefix(request.prompt);
  EXPECT_EQ(prefix.tokens.size(), 32u);
  Engine other(make_cpu_runner(second, {.max_sequences = 4, .poison = true}));
  EXPECT_EQ(other.control().import_prefix(prefix), 2);
  EXPECT_EQ(other.control().import_prefix(prefix), 0);
  r = request;
  r.sampling.prompt_logprobs = 0;
  Request warm = request;
  ears = listen(r);
  const Ears warm_ears = listen(warm);
  other.submit(std::move(warm));
  other.submit(std::move(r));
  other.control().drain();
  EXPECT_THROW(other.submit(request), core::Error);
  EXPECT_EQ(warm_ears->at(0).usage.cached, 32);
  EXPECT_EQ(warm_ears->at(0), alone(second, request)) << "keys that another engine computed";
  EXPECT_EQ(ears->at(0).prompt, request.prompt);
  ASSERT_EQ(ears->at(0).prompt_logprobs.size(), 33u);
  std::vector<std::int32_t> positions(33);
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<float> hidden(33 * 32), logits(33 * 61), logprobs(32);
  model::Workspace ws(second->config());
  model::forward(*second, {request.prompt, positions, std::vector<std::int32_t>{0, 33}}, nullptr,
                 nullptr, ws, hidden);
  model::logits(*second, hidden, 33, ws, logits);
  kernels::token_logprob(std::span(logits).first(32 * 61), 32, std::span(request.prompt).last(32),
                         logprobs, {}, ws.pool());
  EXPECT_EQ(std::vector(ears->at(0).prompt_logprobs.begin() + 1, ears->at(0).prompt_logprobs.end()),
            logprobs);
  KvExport wrong = prefix;
  wrong.weights_version = 1;
  EXPECT_THROW(other.control().import_prefix(wrong), core::Error);
}

// A view shows each page once, and who has it.
TEST(Engine, AViewAgreesWithThePool) {
  core::Rng rng(6);
  Engine engine(make_cpu_runner(
      little(), {.max_tokens = 64, .max_sequences = 3, .page_size = 4, .pages = 60}));
  const std::vector<std::int32_t> shared = random_prompt(rng, 16);
  engine.submit(make(shared, 0.9f, 1));
  engine.run();  // now it is known
  for (int i = 0; i < 5; ++i) {
    std::vector<std::int32_t> prompt = shared;
    prompt.push_back(i);
    engine.submit(make(prompt, 0.9f, 30));
  }
  for (int i = 0; i < 4; ++i) engine.step();
  const EngineView view = engine.control().view();
  ASSERT_EQ(view.sequences.size(), 5u);
  std::map<std::int32_t, int> owners;
  for (const SequenceView& s : view.sequences) {
    EXPECT_EQ(s.running, s.request < 5) << "three run, in the order of arrival";
    EXPECT_EQ(s.prompt, 17);
    EXPECT_EQ(s.pages.empty(), !s.running);
    EXPECT_EQ(s.found, s.running ? 16 : 0);
    for (const std::int32_t page : s.pages) ++owners[page];
  }
  EXPECT_EQ(std::ranges::count(owners | std::views::values, 3), 4) << "16 tokens that all share";
  std::map<PageState, std::int64_t> counted;
  for (std::size_t page = 0; page < view.pages.size(); ++page) {
    const auto state = static_cast<PageState>(view.pages[page]);
    ++counted[state];
    EXPECT_EQ(state == PageState::referenced, owners.contains(static_cast<std::int32_t>(page)));
  }
  EXPECT_EQ(counted[PageState::referenced], view.statistics.pages.referenced);
  EXPECT_EQ(counted[PageState::free], view.statistics.pages.free);
  EXPECT_EQ(counted[PageState::scratch], 1);
}

// Every launch is taken in, within its step.
TEST(Engine, AProfileHasThePartsOfEveryStep) {
  Engine engine(make_cpu_runner(little(), {.max_sequences = 4}));
  EXPECT_THROW(engine.control().stop_profile(), core::Error);
  engine.control().start_profile();
  EXPECT_THROW(engine.control().start_profile(), core::Error);
  engine.submit(make({1, 2, 3}));
  engine.run();
  const core::json::value trace = core::parse_json(engine.control().stop_profile(), "trace");
  std::map<std::string, std::vector<std::pair<double, double>>> spans;
  for (const core::json::value& event : trace.at("traceEvents").as_array()) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts").to_number<double>();
    spans[std::string(event.at("name").as_string())].emplace_back(
        begin, begin + event.at("dur").to_number<double>());
  }
  ASSERT_EQ(spans["launch"].size(), 12u);
  ASSERT_EQ(spans["wait"].size(), 12u);
  constexpr double rounding = 0.01;
  for (const char* part : {"plan", "build", "launch", "wait", "take in"}) {
    for (const auto& [begin, end] : spans[part])
      EXPECT_TRUE(std::ranges::any_of(spans["step"], [&](const auto& step) {
        return step.first <= begin + rounding && end <= step.second + rounding;
      })) << part;
  }
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_LE(spans["launch"][i].second, spans["wait"][i].first + rounding);
}

// Submit from many threads.
TEST(Engine, TakesRequestsFromManyThreads) {
  const auto weights = little();
  const Request original = make({4, 8, 15, 16, 23, 42}, 0.8f, 6);
  const Heard plain = alone(weights, original);
  Engine engine(make_cpu_runner(weights, {.max_sequences = 8}));
  engine.start();
  std::array<std::vector<Ears>, 4> heard;
  {
    std::vector<std::jthread> threads;
    for (auto& mine : heard) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          Request r = original;
          mine.push_back(listen(r));
          const auto handle = engine.submit(std::move(r));
          if (i % 10 == 9) {
            engine.cancel(handle);
            mine.pop_back();
          }
          if (i % 16 == 0) engine.control().statistics();
        }
      });
    }
  }
  engine.control().drain();
  engine.stop();
  for (const auto& mine : heard)
    for (const Ears& ears : mine) ASSERT_EQ(ears->at(0), plain);
}

// A batch that waits for names does not fall into halves.
TEST(Engine, RowsThatWaitForNamesGoTogether) {
  constexpr std::int64_t answer = 40, prompts = 2, slack = 3;
  const CpuRunnerOptions cpu{.max_tokens = 32, .max_sequences = 8};
  const auto ask = [&](bool overlap) {
    Engine engine(make_cpu_runner(little(), cpu), {.overlap = overlap});
    std::vector<Ears> all;
    for (int i = 0; i < 8; ++i) {
      Request r = make({1, 2, 3, 4, 5, 6, 7, i}, 0.8f, answer);
      r.sampling.frequency_penalty = 0.5f;
      r.sampling.ignore_eos = true;
      all.push_back(listen(r));
      engine.submit(std::move(r));
    }
    engine.run();
    std::vector<std::vector<std::int32_t>> tokens;
    for (const Ears& ears : all) tokens.push_back(ears->at(0).tokens);
    EXPECT_LE(engine.control().statistics().steps, answer + prompts + slack);
    return tokens;
  };
  EXPECT_EQ(ask(true), ask(false));
}

// Masks that come late are the right ones.

/// Allows the neighbours of the newest token, modulo the vocabulary.
class Neighbours final : public Grammar {
  struct State final : GrammarState {
    std::int32_t last = -1;
    std::int32_t vocab = 0;
    bool allows(std::int32_t t) const {
      return last < 0 || t == (last + 1) % vocab || t == (last + vocab - 1) % vocab;
    }
    bool accept(std::int32_t token) override {
      if (!allows(token)) return false;
      last = token;
      return true;
    }
    void mask(std::span<std::uint32_t> words) override {
      std::ranges::fill(words, 0u);
      for (std::int32_t t = 0; t < vocab; ++t)
        if (allows(t)) words[static_cast<std::size_t>(t / 32)] |= 1u << t % 32;
    }
    bool can_end() const override { return false; }
    bool must_end() const override { return false; }
    std::string forced() const override { return {}; }
    std::unique_ptr<GrammarState> clone() const override { return std::make_unique<State>(*this); }
  };
  std::int32_t vocab_;

 public:
  explicit Neighbours(std::int32_t vocab) : vocab_(vocab) {}
  std::unique_ptr<GrammarState> start() const override {
    auto state = std::make_unique<State>();
    state->vocab = vocab_;
    return state;
  }
};

TEST(Engine, LateMasksAreTheRightOnes) {
  const auto weights = little();
  const auto vocab = static_cast<std::int32_t>(weights->config().vocab_size);
  const auto ask = [&](bool overlap) {
    Engine engine(make_cpu_runner(weights, {.max_tokens = 32, .max_sequences = 8}),
                  {.overlap = overlap});
    std::vector<Ears> all;
    for (int i = 0; i < 12; ++i) {  // more than run at once, of three kinds, of different lengths
      Request r = make({1, 2, 3, i}, 1.0f, 10 + 3 * i);
      r.sampling.ignore_eos = i % 3 == 0;
      if (i % 3 > 0) r.sampling.grammar = std::make_shared<Neighbours>(vocab);
      if (i % 3 == 2) r.sampling.repetition_penalty = 1.3f;
      all.push_back(listen(r));
      engine.submit(std::move(r));
    }
    engine.run();
    std::vector<std::vector<std::int32_t>> tokens;
    for (const Ears& ears : all) tokens.push_back(ears->at(0).tokens);
    return tokens;
  };
  const auto late = ask(true);
  EXPECT_EQ(late, ask(false));
  for (std::size_t i = 0; i < late.size(); ++i) {
    for (std::size_t t = 1; i % 3 > 0 && t < late[i].size(); ++t) {
      const std::int32_t step = (late[i][t] - late[i][t - 1] + vocab) % vocab;
      EXPECT_TRUE(step == 1 || step == vocab - 1) << "answer " << i << ", token " << t;
    }
  }
}

// A longer answer allocates no more than a short one.
TEST(Engine, AllocatesNothingPerToken) {
  Engine engine(make_cpu_runner(little(), {.max_sequences = 4}), {.overlap = true});
  for (int warm = 0; warm < 2; ++warm) {
    std::atomic<std::int64_t> tokens{0};
    for (int i = 0; i < 4; ++i) {
      Request r = make({1, 2, 3, i}, 0.9f, 200);
      r.on_event = [&tokens](const Event& e) {
        tokens += static_cast<std::int64_t>(e.tokens.size());
      };
      engine.submit(std::move(r));
    }
    for (int i = 0; i < 40; ++i) engine.step();
    engine.flush();
    const std::int64_t before = labs::allocations, had = tokens;
    for (int i = 0; i < 100; ++i) {
      engine.step();
      engine.flush();  // or batches would be as long as the other thread is behind
    }
    if (warm == 1) {
      EXPECT_EQ(tokens - had, 400);
      EXPECT_LE(labs::allocations - before, 4) << "in 400 tokens";
    }
    engine.run();
  }
}

}  // namespace
}  // namespace rose::infer
