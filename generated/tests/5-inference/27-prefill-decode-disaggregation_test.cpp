// Tests of the chapter "Prefill and decode apart".

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
#include <sys/socket.h>
#include <unistd.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/kv_transfer.h"
#include "rose/model/weights.h"
#include "rose/serve/handover.h"
#include "rose/serve/prefill_messages.h"
#include "rose/serve/prefill_server.h"
#include "rose/serve/split_backend.h"

namespace rose::infer {
namespace {

// Moved pages are as good as own ones, bit for bit.
model::Config small_config() {
  model::Config c;
  c.family = model::Family::qwen3;
  c.vocab_size = 97, c.layers = 3, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32;
  c.ffn = 48, c.max_positions = 256, c.qk_norm = true, c.tied_head = true;
  return c;
}

std::unique_ptr<Engine> small_engine(std::int64_t chunk = 0, std::int64_t pages = 100) {
  static const auto weights = model::random_weights(small_config(), 5);
  CpuRunnerOptions options{.max_tokens = 64, .max_sequences = 8};
  options.page_size = 4, options.pages = pages, options.poison = true;
  return std::make_unique<Engine>(make_cpu_runner(weights, options, core::default_pool()),
                                  EngineOptions{.max_chunk = chunk, .seed = 3});
}

std::vector<std::int32_t> random_prompt(std::uint64_t seed, std::size_t tokens) {
  core::Rng rng(seed);
  std::vector<std::int32_t> out(tokens);
  for (auto& id : out) id = static_cast<std::int32_t>(rng.below(97));
  return out;
}

struct Said {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::int64_t cached = 0;
  bool operator==(const Said& o) const { return tokens == o.tokens && logprobs == o.logprobs; }
};

Said ask(Engine& engine, std::vector<std::int32_t> prompt, std::string id = "",
         std::int64_t most = 9) {
  Said said;
  Request r;
  r.id = std::move(id);
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = most, r.sampling.logprobs = 0, r.sampling.temperature = 0.8f,
  r.sampling.seed = 11;
  r.on_event = [&](const Event& e) {
    said.tokens.insert(said.tokens.end(), e.tokens.begin(), e.tokens.end());
    said.logprobs.insert(said.logprobs.end(), e.logprobs.begin(), e.logprobs.end());
    said.cached = e.usage.cached;
  };
  engine.submit(std::move(r));
  engine.run();
  return said;
}

TEST(KvTransfer, MovedPagesAreAsGoodAsOwnOnes) {
  const auto reader = small_engine(5), writer = small_engine(), alone = small_engine();
  KvTransfer out(*reader), in(*writer);
  ASSERT_EQ(out.shape(), in.shape());
  for (std::uint64_t n = 1; n <= 12; ++n) {
    const auto prompt = random_prompt(n / 3, 7 * n);  // some begin alike
    const auto room = in.reserve(n, prompt, "", "");
    if (n > 1) {
      ASSERT_GT(room.first + room.count, 0);
    }
    int blocks = 0, layers_before_the_end = 0;
    out.send("x", room.first, room.count, [&](const KvBlock& b) {
      ++blocks;
      layers_before_the_end += b.layer < 2 ? 1 : 0;
      EXPECT_TRUE(in.write(n, b));
      EXPECT_FALSE(in.write(n, b)) << "twice";
    });
    ask(*reader, prompt, "x", 1);
    EXPECT_EQ(blocks, room.count * 3);
    EXPECT_EQ(in.publish(n), room.count > 0);
    const Said moved = ask(*writer, prompt);
    EXPECT_EQ(moved.cached, 4 * (room.first + room.count));
    EXPECT_EQ(moved, ask(*alone, prompt)) << n;
    in.release(n);
    out.stop("x");
  }
  EXPECT_EQ(in.reserved(), 0);
  for (Engine* e : {reader.get(), writer.get()})
    EXPECT_EQ(e->control().statistics().pages.referenced, 0);
}

TEST(KvTransfer, RefusesWhatItDidNotAskForAndGivesEverythingBack) {
  const auto writer = small_engine(0, 21);
  KvTransfer in(*writer);
  const std::vector<std::byte> bytes(static_cast<std::size_t>(in.shape().block_bytes));
  EXPECT_EQ(in.reserve(1, random_prompt(1, 60), "", "").count, 0) << "more than half of the pool";
  ASSERT_EQ(in.reserve(2, random_prompt(2, 21), "", "").count, 5);
  EXPECT_EQ(writer->control().statistics().pages.referenced, 5);
  EXPECT_FALSE(in.write(9, {.page = 0, .layer = 0, .bytes = bytes}));
  EXPECT_FALSE(in.write(2, {.page = 5, .layer = 0, .bytes = bytes}));
  EXPECT_FALSE(in.write(2, {.page = 0, .layer = 3, .bytes = bytes}));
  EXPECT_FALSE(in.write(2, {.page = 0, .layer = 0, .bytes = std::span(bytes).first(3)}));
  EXPECT_TRUE(in.write(2, {.page = 0, .layer = 0, .bytes = bytes}));
  EXPECT_FALSE(in.publish(2)) << "not complete";
  in.release(2), in.release(2);
  EXPECT_FALSE(in.write(2, {.page = 0, .layer = 1, .bytes = bytes})) << "too late";
  EXPECT_EQ(writer->control().statistics().pages.referenced, 0);
}

}  // namespace
}  // namespace rose::infer

namespace rose::serve {
namespace {

// In every order of events both sides are free in the end, once.
TEST(Handover, BothSidesAreFreeInTheEndOnce) {
  using enum HandoverEvent;
  constexpr int events = 7, longest = 6;
  std::int64_t sequences = 0;
  for (const bool one_sided : {false, true}) {
    const std::function<void(std::vector<HandoverEvent>&)> grow =
        [&](std::vector<HandoverEvent>& past) {
          Handover h(one_sided);
          int released = 0, submitted = 0, told = 0, stops = 0;
          bool stopped = false;
          for (const HandoverEvent e : past) {
            stopped |= e == complete || e == broken || e == lost;
            const auto before = h.state();
            const std::uint8_t actions = h.on(e);
            released += (actions & release_pages) != 0 ? 1 : 0;
            submitted += (actions & submit_question) != 0 ? 1 : 0;
            told += (actions & tell_cancelled) != 0 ? 1 : 0;
            stops += (actions & stop_sender) != 0 ? 1 : 0;
            ASSERT_EQ(h.state() == Handover::State::over, released == 1);
            ASSERT_LE(submitted + told, 1);
            if (before == Handover::State::over) {
              ASSERT_EQ(actions, nothing);
            }
            if ((actions & release_pages) != 0 && one_sided) {
              ASSERT_TRUE(stopped);
            }
            if ((actions & publish_pages) != 0) {
              ASSERT_EQ(e, complete);
            }
          }
          ASSERT_LE(released, 1);
          ASSERT_LE(stops, 1);
          // Whatever happened: when the sender ends and the engine answers, it is over.
          h.on(lost), h.on(admitted);
          ASSERT_EQ(h.state(), Handover::State::over);
          ++sequences;
          if (past.size() == longest) return;
          for (int e = 0; e < events; ++e) {
            past.push_back(static_cast<HandoverEvent>(e));
            grow(past);
            past.pop_back();
          }
        };
    std::vector<HandoverEvent> none;
    grow(none);
  }
  EXPECT_EQ(sequences, 2 * 137'257);  // (7^7 - 1) / 6
}

// What the reader accepts the writer has written.
TEST(PrefillMessages, SurviveEveryTruncationAndFlip) {
  const infer::KvShape shape{.weights_version = 7, .page_size = 16, .layers = 3, .block_bytes = 8};
  std::vector<std::string> frames(6);
  encode(PrefillCommand(ReadPrompt{.number = 5,
                                   .shape = shape,
                                   .first = 1,
                                   .count = 2,
                                   .deadline_ms = 9,
                                   .prompt = {1, 2, 3},
                                   .adapter = "a",
                                   .salt = "s"}),
         frames[0]);
  encode(PrefillCommand(StopReading{6}), frames[1]);
  encode(PrefillReport(PrefillReady{shape}), frames[2]);
  encode(PrefillReport(PageBlock{.number = 5, .page = 1, .layer = 2, .bytes = "12345678"}),
         frames[3]);
  encode(PrefillReport(PromptRead{5}), frames[4]);
  encode(PrefillReport(PromptNotRead{5, "why"}), frames[5]);
  core::Rng rng(3);
  int accepted = 0;
  for (std::size_t i = 0; i < frames.size(); ++i)
    for (int round = 0; round < 400; ++round) {
      std::string bytes = frames[i].substr(4);
      if (round > 0) {
        bytes[rng.below(static_cast<std::uint32_t>(bytes.size()))] ^=
            static_cast<char>(1 << rng.below(8));
        if (rng.below(3) == 0) bytes.resize(rng.below(static_cast<std::uint32_t>(bytes.size())));
      }
      if (bytes.empty()) continue;
      const Frame f{static_cast<std::uint8_t>(bytes[0]), std::string_view(bytes).substr(1)};
      std::string again;
      try {
        if (i < 2)
          encode(decode_prefill_command(f), again);
        else
          encode(decode_prefill_report(f), again);
      } catch (const core::Error& error) {
        EXPECT_NE(round, 0);
        EXPECT_EQ(error.code(), core::Code::corrupt);
        continue;
      }
      ++accepted;
      EXPECT_EQ(again.substr(4), bytes);
    }
  EXPECT_GT(accepted, 6);
}

// Answers are those of one engine, whoever leaves or dies.
model::Config split_config() {
  model::Config c;
  c.family = model::Family::qwen3;
  c.vocab_size = 97, c.layers = 3, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32;
  c.ffn = 48, c.max_positions = 256, c.qk_norm = true, c.tied_head = true;
  return c;
}

text::Tokenizer letters() {
  text::Vocab vocab;
  for (int i = 0; i < 97; ++i) vocab.tokens.emplace_back(1, static_cast<char>(' ' + i % 90));
  return text::Tokenizer(std::move(vocab));
}

std::unique_ptr<infer::Engine> split_engine(std::int64_t chunk) {
  static const auto weights = model::random_weights(split_config(), 5);
  infer::CpuRunnerOptions options{.max_tokens = 64, .max_sequences = 8};
  options.page_size = 4, options.pages = 200, options.poison = true;
  return std::make_unique<infer::Engine>(make_cpu_runner(weights, options, core::default_pool()),
                                         infer::EngineOptions{.max_chunk = chunk, .seed = 3},
                                         letters());
}

Question split_question(std::uint64_t seed) {
  core::Rng rng(seed);
  Question q;
  q.prompt.resize(40 + rng.below(80));
  for (auto& id : q.prompt) id = static_cast<std::int32_t>(rng.below(97));
  q.sampling.max_tokens = 8, q.sampling.temperature = 0.7f, q.sampling.seed = seed;
  q.sampling.ignore_eos = true, q.sampling.logprobs = 0;
  return q;
}

struct SplitHeard {
  std::mutex mutex;
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::optional<infer::Finish> finish;
  int ends = 0;
  void operator()(const Notice& n) {
    const std::scoped_lock lock(mutex);
    if (n.kind == Notice::Kind::refused) ++ends;
    if (n.kind != Notice::Kind::event) return;
    tokens.insert(tokens.end(), n.event->tokens.begin(), n.event->tokens.end());
    logprobs.insert(logprobs.end(), n.event->logprobs.begin(), n.event->logprobs.end());
    if (n.event->finish) finish = n.event->finish, ++ends;
  }
  bool over() {
    const std::scoped_lock lock(mutex);
    return ends > 0;
  }
};

template <class Condition>
bool in_time(const Condition& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

// Nothing leaks and nothing differs under cancellations and deaths.
class Reader {
 public:
  Reader() : engine_(split_engine(7)), thread_([this] { work(); }) { engine_->start(); }
  ~Reader() {
    {
      const std::scoped_lock lock(mutex_);
      ending_ = true;
      came_.notify_all();
    }
    cut();
    thread_.join();
  }
  int connect(pid_t&) {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    const std::scoped_lock lock(mutex_);
    sockets_.push_back(ends[1]);
    came_.notify_all();
    return ends[0];
  }
  void cut() {
    const std::scoped_lock lock(mutex_);
    if (serving_ >= 0) shutdown(serving_, SHUT_RDWR);
  }
  infer::Statistics statistics() { return engine_->control().statistics(); }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      came_.wait(lock, [&] { return ending_ || !sockets_.empty(); });
      if (sockets_.empty()) return;
      serving_ = sockets_.front();
      sockets_.pop_front();
      if (ending_) shutdown(serving_, SHUT_RDWR);
      lock.unlock();
      serve_prefill(serving_, *engine_);
      lock.lock();
      close(std::exchange(serving_, -1));
    }
  }
  std::unique_ptr<infer::Engine> engine_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<int> sockets_;
  int serving_ = -1;
  bool ending_ = false;
  std::thread thread_;
};

TEST(SplitBackend, AnswersAsOneEngineWouldWhoeverLeavesOrDies) {
  Reader reader;
  const auto writer = split_engine(0), alone = split_engine(0);
  LocalBackend single(*alone, letters(), {});
  SplitOptions options{.engines = {[&](pid_t& p) { return reader.connect(p); }}, .least_pages = 3};
  options.restart = std::chrono::milliseconds(5);
  SplitBackend split(*writer, letters(), {}, options);
  constexpr std::uint64_t questions = 120;
  std::deque<SplitHeard> heard(questions), wanted(questions);
  core::Rng rng(17);
  for (std::uint64_t i = 0; i < questions; ++i) {
    single.submit(split_question(i), std::ref(wanted[i]));
    const auto number = split.submit(split_question(i), std::ref(heard[i]));
    if (rng.below(2) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(rng.below(12)));
    if (i % 3 == 1) split.cancel(number);
    if (i % 17 == 16) reader.cut();
  }
  std::size_t cancelled = 0;
  for (std::uint64_t i = 0; i < questions; ++i) {
    ASSERT_TRUE(in_time([&] { return heard[i].over() && wanted[i].over(); })) << i;
    ASSERT_EQ(heard[i].ends, 1);
    if (heard[i].finish == infer::Finish::cancelled) {
      ++cancelled;
      continue;
    }
    EXPECT_EQ(heard[i].tokens, wanted[i].tokens) << i;
    EXPECT_EQ(heard[i].logprobs, wanted[i].logprobs) << i;
  }
  const SplitCounts c = split.counts();
  EXPECT_GT(c.moved, 10) << "the detour was hardly taken";
  EXPECT_GT(c.lost + c.cancelled, 0) << "it was too easy";
  EXPECT_LE(cancelled, questions / 3);
  EXPECT_TRUE(in_time([&] { return split.reserved_pages() == 0; }));
  EXPECT_TRUE(in_time([&] { return split.statistics().pages.referenced == 0; }));
  EXPECT_TRUE(in_time([&] { return reader.statistics().pages.referenced == 0; }));
  const auto pages = split.statistics().pages;
  EXPECT_EQ(pages.total(), 201);
}

// A reader that is silent, or has other weights, costs a delay and nothing else.
TEST(SplitBackend, ASilentReaderCostsADelay) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const auto writer = split_engine(0);
  SplitOptions options{.engines = {[&](pid_t&) { return dup(ends[0]); }}, .least_pages = 3};
  options.patience = std::chrono::milliseconds(60);
  infer::KvShape shape;
  {
    const auto other = split_engine(0);
    shape = infer::KvTransfer(*other).shape();
  }
  SplitBackend split(*writer, letters(), {}, options);
  std::string hello;
  encode(PrefillReport(PrefillReady{shape}), hello);
  ASSERT_EQ(send(ends[1], hello.data(), hello.size(), 0), static_cast<ssize_t>(hello.size()));
  for (std::uint64_t seed = 1; split.counts().asked == 0; ++seed) {  // until it knows its reader
    SplitHeard heard;
    split.submit(split_question(seed), std::ref(heard));
    ASSERT_TRUE(in_time([&] { return heard.over(); }));
    EXPECT_EQ(heard.tokens.size(), 8);
  }
  EXPECT_TRUE(in_time([&] { return split.counts().fallen_back == split.counts().asked; }));
  EXPECT_TRUE(in_time([&] { return split.reserved_pages() == 0; }));
  shutdown(ends[1], SHUT_RDWR);
  close(ends[0]), close(ends[1]);
}

}  // namespace
}  // namespace rose::serve

namespace rose {
namespace {

// The arithmetic of wires and machines.
TEST(KvTransferArithmetic, OfWiresAndMachines) {
  const double bytes = 2.0 * 28 * 8 * 128 * 2;
  const double p = 200'000, w = 20'000, P = 4096, A = 256, t0 = 5e-3;
  const auto apart = [&](double a, double b) { return std::min(a * p / P, b * w / A); };
  const auto together = [&](double n) { return n / (P / p + A / w); };
  const double mixed = t0 + P / p;
  const auto write = [](const char* name, double value) {
    labs::write_value("kv-transfer-arithmetic", name, value);
  };
  write("kib-per-token", bytes / 1024);
  write("mib-4096", bytes * 4096 / (1 << 20));
  write("ms-4096", bytes * 4096 / 50e9 * 1e3);
  write("mixed-ms", mixed * 1e3);
  write("mixed-ratio", mixed / t0);
  write("tokens-allowed", (10e-3 - t0) * p);
  write("read-ms", P / p * 1e3);
  write("write-ms", A / w * 1e3);
  write("together", together(2));
  write("apart", apart(1, 1));
  write("loss-percent", 100 * (1 - apart(1, 1) / together(2)));
  write("five-loss-percent", 100 * (1 - apart(3, 2) / together(5)));
  for (int a = 1; a < 12; ++a)
    for (int b = 1; b < 12; ++b) EXPECT_LE(apart(a, b), together(a + b) * (1 + 1e-12));
  EXPECT_LT(5, bytes * 4096 / 50e9 * 1e3);
}

}  // namespace
}  // namespace rose
