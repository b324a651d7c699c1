// Tests of the chapter "Engine processes".

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
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/model/weights.h"
#include "rose/serve/backend.h"
#include "rose/serve/engine_server.h"
#include "rose/serve/local_backend.h"
#include "rose/serve/messages.h"
#include "rose/serve/outbox.h"
#include "rose/serve/parrot.h"
#include "rose/serve/remote_backend.h"
#include "rose/serve/spawn.h"
#include "rose/serve/wire.h"
#include "rose/text/tokenizer.h"

namespace rose::serve {
namespace {

// The codec accepts what it wrote and nothing else.
Submit random_submit(core::Rng& rng) {
  Submit s{rng.next64(), {}};
  for (std::uint32_t i = rng.below(20); i > 0; --i)
    s.question.prompt.push_back(static_cast<std::int32_t>(rng.below(1000)));
  s.question.sampling.temperature = rng.uniform();
  if (rng.below(2) == 1) s.question.sampling.seed = rng.next64();
  for (std::uint32_t i = rng.below(4); i > 0; --i)
    s.question.sampling.stop.emplace_back(rng.below(5), 'x');
  for (std::uint32_t i = rng.below(4); i > 0; --i)
    s.question.sampling.logit_bias.emplace_back(rng.below(9), rng.uniform());
  s.question.shape = {static_cast<Shape::Kind>(rng.below(5)), "shape"};
  if (rng.below(2) == 1) s.question.pooling = infer::Pooling{.normalize = rng.below(2) == 1};
  return s;
}

Report random_seen(core::Rng& rng) {
  Seen seen;
  for (std::uint32_t i = rng.below(4); i > 0; --i)
    seen.view.sequences.push_back({.request = i, .running = rng.below(2) == 1, .pages = {1, 2}});
  for (std::uint32_t i = rng.below(9); i > 0; --i)
    seen.view.pages.push_back(static_cast<std::uint8_t>(rng.below(5)));
  return seen;
}

TEST(Wire, IsItsOwnInverseAndBelievesNothing) {
  core::Rng rng(1);
  for (int round = 0; round < 300; ++round) {
    const float p = rng.uniform();
    std::string up, down;
    const std::array<std::int32_t, 2> tokens{1, 2};
    const std::array<float, 2> logprobs{-p, -1};
    const std::array<infer::Alternative, 4> top{};
    encode(Command(random_submit(rng)), down);
    if (round % 5 == 0)
      down.clear(),
          encode(Command(Operate{rng.next64(), {Operation::Kind::stop_profile, "a", "/tmp"}}),
                 down);
    encode(Report(owned(7, {.choice = 3,
                            .tokens = tokens,
                            .logprobs = logprobs,
                            .top = top,
                            .top_count = 2,
                            .text = "näh",
                            .finish = infer::Finish::length,
                            .embedding = logprobs})),
           up);
    if (round % 3 == 0) up.clear(), encode(random_seen(rng), up);
    if (round % 5 == 0) up.clear(), encode(Report(Operated{.number = 7, .said = "file"}), up);
    for (const bool is_command : {true, false}) {
      const auto again = [&](std::string_view bytes) {
        FrameReader reader;
        reader.push(bytes);
        const auto frame = reader.next();
        std::string out;
        if (frame && is_command) encode(decode_command(*frame), out);
        if (frame && !is_command) encode(decode_report(*frame), out);
        return out;
      };
      std::string& bytes = is_command ? down : up;
      EXPECT_EQ(again(bytes), bytes);
      constexpr std::size_t head = 5;
      std::string cut =
          bytes.substr(0, head + rng.below(static_cast<std::uint32_t>(bytes.size() - head)));
      const auto length = static_cast<std::uint32_t>(cut.size() - 4);
      std::memcpy(cut.data(), &length, 4);
      EXPECT_THROW(again(cut), core::Error);
      std::string wrong = bytes;
      wrong[head + rng.below(static_cast<std::uint32_t>(wrong.size() - head))] ^=
          static_cast<char>(1 + rng.below(255));
      try {
        EXPECT_EQ(again(wrong), wrong);
      } catch (const core::Error& error) {
        EXPECT_EQ(error.code(), core::Code::corrupt);
      }
    }
  }
}

// Each answer is its question, with pages for a few of them.
constexpr std::int32_t open_mark = 256, close_mark = 257;

text::Tokenizer byte_tokenizer() {
  text::Vocab vocab;
  for (int byte = 0; byte < 256; ++byte) vocab.tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* mark : {"<|im_start|>", "<|im_end|>"}) {
    vocab.added.push_back(
        {.content = mark, .id = static_cast<std::int32_t>(vocab.tokens.size()), .special = true});
    vocab.tokens.emplace_back(mark);
  }
  return text::Tokenizer(std::move(vocab));
}

std::unique_ptr<infer::Runner> byte_parrot(const ParrotOptions& options) {
  model::Config config;
  config.vocab_size = 258, config.layers = config.heads = config.kv_heads = 1;
  config.head_dim = config.hidden = config.ffn = 2, config.max_positions = 512,
  config.tied_head = true;
  config.eos_ids = {close_mark};
  return make_parrot(byte_tokenizer(), model::random_weights(config, 1), options);
}

Question conversation(std::string_view text) {
  Question q;
  q.prompt = {open_mark, 'u', '\n'};
  for (const char c : text) q.prompt.push_back(static_cast<unsigned char>(c));
  q.prompt.insert(q.prompt.end(), {close_mark, '\n', open_mark, 'a', '\n'});
  q.sampling.max_tokens = 200;
  q.sampling.seed = 1;
  return q;
}

// What is heard of a question is counted.
struct Heard {
  std::mutex mutex;
  std::string text;
  int accepted = 0, refused = 0, lost = 0, finished = 0;
  std::string error;
  void operator()(const Notice& n) {
    const std::scoped_lock lock(mutex);
    accepted += n.kind == Notice::Kind::accepted;
    refused += n.kind == Notice::Kind::refused;
    lost += n.kind == Notice::Kind::lost;
    if (n.error != nullptr) error = n.error->what();
    if (n.event == nullptr) return;
    EXPECT_EQ(accepted, 1) << "accepted comes first";
    text += n.event->text;
    finished += n.event->finish.has_value();
  }
  bool over() {
    const std::scoped_lock lock(mutex);
    return refused + lost + finished > 0;
  }
};

template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 2000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

// Sixty questions share a beginning, and have pages for a few of them.
TEST(Parrot, AnswersEachQuestionWithItself) {
  infer::Engine engine(
      byte_parrot({.tokens = 64, .sequences = 8, .positions = 300, .pages = 120, .page_size = 4}),
      {}, byte_tokenizer());
  LocalBackend backend(engine, byte_tokenizer(), {});
  std::vector<std::unique_ptr<Heard>> all;
  const auto question = [](int i) {
    return fmt::format("The same beginning, and then {} times {}.", i,
                       std::string(static_cast<std::size_t>(i), 'x'));
  };
  for (int i = 0; i < 60; ++i) {
    all.push_back(std::make_unique<Heard>());
    backend.submit(conversation(question(i)), [h = all.back().get()](const Notice& n) { (*h)(n); });
  }
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(eventually([&] { return all[static_cast<std::size_t>(i)]->over(); }));
    EXPECT_EQ(all[static_cast<std::size_t>(i)]->text, question(i));
  }
  const infer::Statistics s = backend.statistics();
  EXPECT_GT(s.preemptions, 0) << "it was too easy";
  EXPECT_GT(s.prefix.tokens_found, 0);
  EXPECT_EQ(s.pages.referenced, 0);
}

// A bad shape is refused alone, and a cancelled question ends.
TEST(LocalBackend, RefusesOneAndAnswersTheOthers) {
  infer::Engine engine(
      byte_parrot({.positions = 300, .pages = 200, .step = std::chrono::microseconds(200)}), {},
      byte_tokenizer());
  LocalBackend backend(engine, byte_tokenizer(), {});
  Heard bad, shaped, empty, gone;
  Question q = conversation("x");
  q.shape = {Shape::Kind::json_schema, R"({"type": "nonsense"})"};
  backend.submit(q, std::ref(bad));
  q.shape = {Shape::Kind::json_schema, R"({"const": [1, true]})"};
  backend.submit(q, std::ref(shaped));
  backend.submit({}, std::ref(empty));
  Question endless = conversation("y");
  endless.sampling.ignore_eos = true;
  backend.cancel(backend.submit(endless, std::ref(gone)));
  for (Heard* h : {&bad, &shaped, &empty, &gone})
    ASSERT_TRUE(eventually([&] { return h->over(); }));
  EXPECT_EQ(bad.refused, 1);
  EXPECT_THAT(bad.error, ::testing::StartsWith("response_format"));
  EXPECT_EQ(empty.refused, 1);
  EXPECT_EQ(gone.finished, 1);
  std::erase_if(shaped.text, [](char c) { return c == ' ' || c == '\n'; });
  EXPECT_EQ(shaped.text, "[1,true]");
}

// The engine's side of the protocol.
TEST(EngineServer, SpeaksTheProtocolAndNoticesTheEnd) {
  infer::Engine engine(byte_parrot({.positions = 300, .pages = 200}), {}, byte_tokenizer());
  LocalBackend backend(engine, byte_tokenizer(), {.runner = "parrot", .vocab = 258});
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::thread served([&] { serve_engine(ends[1], backend); });
  std::string out;
  encode(Command(Hello{}), out);
  encode(Command(Submit{41, conversation("over a wire")}), out);
  Question endless = conversation("z");
  endless.sampling.ignore_eos = true;
  encode(Command(Submit{42, endless}), out);
  for (const char& c : out) ASSERT_EQ(send(ends[0], &c, 1, 0), 1);  // a byte at a time
  FrameReader frames;
  std::string text;
  bool ready = false, ended = false;
  for (std::string piece; !ended && read_some(ends[0], piece) > 0;) {
    frames.push(piece);
    while (const auto frame = frames.next()) {
      const Report report = decode_report(*frame);
      if (const auto* r = std::get_if<Ready>(&report)) ready = r->facts.vocab == 258;
      const auto* h = std::get_if<Happened>(&report);
      if (h == nullptr || h->number != 41) continue;
      text += h->text;
      ended = h->finish > 0;
    }
  }
  EXPECT_TRUE(ready);
  EXPECT_EQ(text, "over a wire");
  close(ends[0]);
  served.join();
  EXPECT_TRUE(eventually([&] { return backend.statistics().running == 0; }));
  close(ends[1]);
}

}  // namespace
}  // namespace rose::serve
