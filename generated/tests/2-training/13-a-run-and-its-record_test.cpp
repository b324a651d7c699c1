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

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/trainer/config.h"
#include "rose/trainer/fresh_shape.h"

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
            "this is not YAML: end of sequence flow not found | tiny.yaml:2:1 | ");
  EXPECT_EQ(config_error(small_run, {"steps"}),
            "an override has the form KEY=VALUE | steps | for example --set optimizer.rate=1e-3");
  EXPECT_EQ(config_error(small_run, {"optimizer.warmup=200"}),
            "200 steps of warm-up in a run of 200 steps | optimizer.warmup | the peak would never "
            "be reached: lower it");
}

}  // namespace
}  // namespace rose::trainer
