// Tests of the chapter "A run and its record".

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

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/trainer/config.h"
#include "rose/trainer/event_file.h"
#include "rose/trainer/fresh_shape.h"
#include "rose/trainer/make_compute.h"
#include "rose/trainer/metrics.h"
#include "rose/trainer/plot.h"
#include "rose/trainer/prepare_run.h"
#include "rose/trainer/run.h"
#include "rose/trainer/task.h"

namespace rose::trainer {
namespace {

// A configuration is read, overridden, saved and read again.
constexpr std::string_view small_run = R"(
name: tiny
steps: 200
model: {family: llama, layers: 2, hidden: 32, heads: 4, kv_heads: 2, head_dim: 8, ffn: 48, max_positions: 64}
data:
  text: [book, "notes and: letters.md"]
batch: {context: 32, rows: 4, tokens: 1_024}
optimizer:
  rate: 4e-3
  schedule: wsd
  decay_steps: 40
  warmup: 10
)";

TEST(Config, IsReadOverriddenSavedAndReadAgain) {
  const TrainConfig c = parse_config(
      small_run, "tiny.yaml",
      {"optimizer.rate=1e-3", "seed=9", "data.text=[a, b]", "optimizer.schedule=linear"});
  EXPECT_EQ(c.batch.tokens, 1024);
  EXPECT_EQ(c.micro_batches(), 8);
  EXPECT_EQ(c.rate.peak, 1e-3);
  EXPECT_EQ(c.rate.steps, 200);
  EXPECT_EQ(c.rate.shape, RateShape::linear);
  EXPECT_EQ(c.seed, 9u);
  EXPECT_EQ(c.data.text, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.folder(), "runs/tiny");
  const std::string saved = to_yaml(c);
  const TrainConfig again = parse_config(saved, "saved.yaml");
  EXPECT_EQ(to_yaml(again), saved);
  EXPECT_EQ(again.optimizer.beta2, c.optimizer.beta2);
  EXPECT_NE(saved.find("  beta2: 0.95"), std::string::npos);
  EXPECT_NE(saved.find("# peak learning rate"), std::string::npos);
}

std::string config_error(std::string_view yaml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(yaml, "tiny.yaml", overrides);
  } catch (const core::Error& error) {
    return fmt::format("{} | {} | {}", error.message(), error.argument(), error.hint());
  }
  return "";
}

TEST(Config, MistakesAreNamedWithWhatWouldDo) {
  EXPECT_EQ(config_error("optimizer:\n  weight_deacy: 1"),
            "there is no key \"optimizer.weight_deacy\" | tiny.yaml:2:3 | did you mean "
            "\"optimizer.weight_decay\"?");
  EXPECT_EQ(config_error(small_run, {"warmup=3"}),
            "there is no key \"warmup\" | the command line | did you mean \"optimizer.warmup\"?");
  EXPECT_EQ(config_error("steps: many"),
            "steps: \"many\" is not a whole number | tiny.yaml:1:1 | optimizer steps in all");
  EXPECT_EQ(config_error(small_run, {"batch.tokens=1000"}),
            "a step of 1000 tokens is no whole number of micro-batches of 4 rows of 32 tokens | "
            "batch.tokens | 896 or 1024 would be");
  EXPECT_EQ(config_error(small_run, {"model.kv_heads=3"}),
            "4 query heads cannot share 3 key heads equally | model.kv_heads | kv_heads must "
            "divide heads");
  EXPECT_EQ(config_error(small_run, {"optimizer.schedule=cosinus"}),
            "optimizer.schedule: \"cosinus\" is not one of constant, cosine, linear, wsd | the "
            "command line | constant, linear, cosine, wsd");
  EXPECT_EQ(config_error(small_run, {"data.text=[]"}),
            "there is nothing to train on | data.train | name shards in data.train, or text files "
            "in data.text");
  EXPECT_EQ(config_error("steps: [1"),
            "this is not YAML: end of sequence flow not found | tiny.yaml:1:1 | ");
  EXPECT_EQ(config_error(small_run, {"steps"}),
            "an override has the form KEY=VALUE | steps | for example --set optimizer.rate=1e-3");
  EXPECT_EQ(config_error(small_run, {"optimizer.warmup=200"}),
            "200 steps of warm-up in a run of 200 steps | optimizer.warmup | the peak would never "
            "be reached: lower it");
}

// Every ready configuration can be what it says.
TEST(TrainConfig, ReadyOnesCanBeWhatTheySay) {
  int gpt2 = 0, found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const TrainConfig c = read_config(entry.path());
    const std::string name = entry.path().stem().string();
    EXPECT_EQ(c.name, name);
    EXPECT_NO_THROW(check(c)) << name;
    ++found;
    if (!name.starts_with("gpt2-")) continue;
    const model::Config& m = c.model.shape;
    const std::int64_t w = m.hidden;
    EXPECT_EQ(m.ffn, 4 * w);
    EXPECT_EQ(m.heads * m.head_dim, w);
    const std::int64_t words = 50257;  // the file has more: a multiple of 64 is faster
    const std::int64_t all =
        (words + m.max_positions) * w + m.layers * (12 * w * w + 13 * w) + 2 * w;
    // The second has 355 million, and is called by a rounder number.
    const std::int64_t said = std::stoll(name.substr(5));
    EXPECT_NEAR(static_cast<double>(all) / 1e6, static_cast<double>(said == 350 ? 355 : said), 1.0);
    ++gpt2;
  }
  EXPECT_EQ(gpt2, 4);
  EXPECT_GE(found, 12);
}

// Records are read back by another reader.
std::uint32_t bitwise_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool differ = (((static_cast<unsigned char>(c) >> bit) ^ crc) & 1u) != 0;
      crc = (crc >> 1) ^ (differ ? 0x82F63B78u : 0u);
    }
  }
  return ~crc;
}

std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> out;
  const auto word = [&](std::size_t at) {
    std::uint32_t w;
    std::memcpy(&w, &file[at], 4);
    return w;
  };
  const auto good = [&](std::string_view bytes, std::uint32_t stored) {
    const std::uint32_t crc = bitwise_crc32c(bytes);
    return stored == ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
  };
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t length;
    std::memcpy(&length, &file[at], 8);
    EXPECT_TRUE(good(std::string_view(file).substr(at, 8), word(at + 8)));
    out.push_back(file.substr(at + 12, length));
    EXPECT_TRUE(good(out.back(), word(at + 12 + length)));
    at += 16 + length;
  }
  return out;
}

TEST(EventFile, IsReadBackByAnotherReader) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  const auto folder = std::filesystem::temp_directory_path() / "rose-event-file";
  std::filesystem::create_directories(folder);
  EventFile events(folder, 0, 1.5);
  events.scalar("loss", 300, 2.5, 2.0);
  events.flush();
  const auto records = records_of(core::read_file(events.path()));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
  // wall time 2.0; step 300 = 0b10'0101100; summary of 13 bytes { value of 11 { tag "loss", 2.5f } }
  EXPECT_EQ(records[1], std::string("\x09\0\0\0\0\0\0\0\x40"
                                    "\x10\xac\x02"
                                    "\x2a\x0d"
                                    "\x0a\x0b"
                                    "\x0a\x04loss"
                                    "\x15\0\0\x20\x40",
                                    27));
  std::filesystem::remove_all(folder);
}

TEST(Metrics, LinesBeyondTheStepAreDroppedAndNumbersKeepTheirBits) {
  const auto folder = std::filesystem::temp_directory_path() / "rose-metrics";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  {
    MetricsLog log(folder, 0, 1);
    for (int s = 1; s <= 4; ++s)
      log.write({.step = s, .values = {{"loss", 1.0 / s / 3}}, .timing = {{"seconds", 0.5}}}, s);
    log.write({.step = 4, .values = {{"loss", std::numeric_limits<double>::quiet_NaN()}}}, 5);
  }
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "{\"step\":5,\"lo";  // cut off
  MetricsLog again(folder, 2, 9);
  again.write({.step = 3, .values = {{"validation_loss", 7}}}, 9);
  const auto losses = read_metric(folder / "metrics.jsonl", "loss");
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[1].second, 1.0 / 2 / 3);
  EXPECT_EQ(read_metric(folder / "metrics.jsonl", "validation_loss").size(), 1u);
  EXPECT_EQ(core::read_file(folder / "timing.jsonl"),
            "{\"step\":1,\"seconds\":0.5}\n{\"step\":2,\"seconds\":0.5}\n");
  std::filesystem::remove_all(folder);
}

// A curve with round numbers.
TEST(Plot, HasRoundNumbersAndLeavesOutWhatIsNotFinite) {
  EXPECT_EQ(ticks(0, 1000, 5), (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  EXPECT_EQ(ticks(2.93, 7.02, 4), (std::vector<double>{3, 4, 5, 6, 7}));
  const std::string svg = plot_losses("a & b", {{1, 7}, {2, std::nan("")}, {3, 5}}, {{3, 5.5}});
  EXPECT_NE(
      svg.find("training loss from 7.000 at step 1 to 5.000 at step 3; validation loss 5.500"),
      std::string::npos);
  EXPECT_NE(svg.find("<title>a &amp; b</title>"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_NE(plot_losses("empty", {}, {}).find("no losses yet"), std::string::npos);
}

// An interrupted run ends as if it had not been.
TrainConfig chapter_run(const std::filesystem::path& out) {
  return parse_config(fmt::format(R"(
steps: 12
model: {{family: llama, layers: 1, hidden: 32, heads: 2, kv_heads: 1, head_dim: 16, ffn: 64, max_positions: 64, tied_head: true}}
tokenizer: {{vocabulary: 300}}
data: {{text: [book/2-training/14-a-run-and-its-record.md]}}
batch: {{context: 32, rows: 2, tokens: 128}}
optimizer: {{rate: 1e-2, warmup: 2}}
every: {{validate: 6, sample: 6, checkpoint: 4}}
sample: {{prompt: "The run", tokens: 8}}
out: {}
)",
                                  out.string()),
                      "chapter");
}

TEST(Run, InterruptedEndsAsIfItHadNotBeen) {
  core::ThreadPool pool(2);
  const auto folder = std::filesystem::temp_directory_path() / "rose-run-test";
  std::filesystem::remove_all(folder);
  std::string said;
  const RunHooks hooks{.say = [&](std::string_view line) { said += std::string(line) + "\n"; }};
  const RunResult whole = train(chapter_run(folder / "whole"), false, hooks, pool);
  EXPECT_EQ(whole.step, 12);
  EXPECT_LT(whole.loss, whole.first_loss);
  EXPECT_GT(whole.bits_per_byte, 0.0);
  int steps = 0;
  RunHooks stopping = hooks;
  stopping.interrupted = [&] { return ++steps == 5; };
  const RunResult half = train(chapter_run(folder / "parts"), false, stopping, pool);
  EXPECT_TRUE(half.interrupted);
  EXPECT_NE(said.find("Go on with: rose train --resume " + (folder / "parts").string()),
            std::string::npos);
  EXPECT_THROW(train(chapter_run(folder / "parts"), false, hooks, pool), core::Error);
  const RunResult rest = train(config_of_run(folder / "parts"), true, hooks, pool);
  EXPECT_EQ(rest.loss, whole.loss);
  EXPECT_EQ(rest.validation_loss, whole.validation_loss);
  for (const char* file : {"metrics.jsonl", "loss.svg", "samples.txt", "tokenizer.json"})
    EXPECT_EQ(core::read_file(folder / "whole" / file), core::read_file(folder / "parts" / file))
        << file;
  EXPECT_EQ(core::read_file(whole.checkpoint / "model.safetensors"),
            core::read_file(rest.checkpoint / "model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(whole.checkpoint / "config.json"));
  std::filesystem::remove_all(folder);
}

// Every ready configuration is a configuration.
TEST(Config, EveryReadyOneIsAConfiguration) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const core::json::value text = core::json::string(core::read_file(entry.path()));
    if (text.as_string().find("\nmethod:") != core::json::string::npos)
      continue;  // of fine-tuning: another program's
    const TrainConfig config = read_config(entry.path());
    EXPECT_EQ(config.batch.tokens % (config.batch.rows * config.batch.context), 0);
    EXPECT_EQ(to_yaml(parse_config(to_yaml(config), "again")), to_yaml(config));
    ++found;
  }
  EXPECT_GE(found, 7);
}

TEST(Config, TheShapesHaveTheirWeights) {
  const auto millions = [](const char* file) {
    const model::Config c = fresh_shape(read_config(std::string("configs/") + file).model.shape);
    const double head = static_cast<double>(c.vocab_size * c.hidden);
    const double products = (flops_per_token(c, 0) / 6 - head) * 1e-6;
    return products + head * 1e-6;
  };
  EXPECT_NEAR(millions("gpt2-124m.yaml"), 124,
              1);  // without 0.8 million position rows and 0.1 of vectors
  EXPECT_NEAR(millions("gpt2-1558m.yaml"), 1556, 3);
  EXPECT_NEAR(millions("qwen3-0.6b.yaml"), 596, 1);
}

}  // namespace
}  // namespace rose::trainer
