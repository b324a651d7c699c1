// Tests of the chapter "Adapters".

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

#include <filesystem>
#include <map>

#include "labs/evidence/values.h"
#include "labs/gpu/gpu_test.h"
#include "labs/inference/qwen3.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/engine.h"
#include "rose/infer/gpu_runner.h"
#include "rose/model/adapter.h"
#include "rose/model/files/budget.h"
#include "rose/model/forward.h"
#include "rose/model/gpu_adapters.h"

namespace rose::model {
namespace {

// Draw an adapter that changes much.
Config adapted_model(Family family) {
  Config c;
  c.family = family;
  c.vocab_size = 89, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32;
  c.ffn = 48, c.max_positions = 64;
  if (family == Family::gpt2) {
    c.norm = NormKind::layernorm, c.activation = Activation::gelu_tanh, c.tied_head = true;
    c.qkv_bias = c.o_bias = c.mlp_bias = true, c.kv_heads = 4;
  }
  c.qk_norm = family == Family::qwen3;
  return c;
}

Adapter strong_adapter(const Config& config, std::uint64_t seed, AdapterOptions options = {}) {
  Adapter adapter = fresh_adapter(config, options, seed);
  core::Rng rng(seed, 99);
  for (LayerAdapter& layer : adapter.layers)
    for (LowRank& pair : layer)
      for (float& x : pair.b) x = 0.3f * rng.normal();
  return adapter;
}

std::shared_ptr<WeightSet> loud_weights(const Config& config) {
  auto weights = random_weights(config, 5);
  for (const Parameter& p : weights->parameters())
    for (float& x : p.f32()) x *= p.shape.size() == 2 ? 6.0f : 1.0f;
  return weights;
}

/// Hidden states of sequences of `n` tokens each.
std::vector<float> adapted_hidden(const WeightSet& weights, std::size_t n,
                                  const std::vector<std::vector<std::int32_t>>& texts,
                                  const std::vector<const Adapter*>& adapters) {
  std::vector<std::int32_t> ids, positions, offsets{0};
  for (const auto& text : texts) {
    for (std::size_t t = 0; t < n; ++t)
      ids.push_back(text[t]), positions.push_back(static_cast<std::int32_t>(t));
    offsets.push_back(static_cast<std::int32_t>(ids.size()));
  }
  Workspace ws(weights.config());
  std::vector<float> hidden(ids.size() * static_cast<std::size_t>(weights.config().hidden));
  forward(weights, {ids, positions, offsets, adapters}, nullptr, nullptr, ws, hidden);
  return hidden;
}

// An adapted model is the merged one.
TEST(Adapter, AgreesWithMergedWeights) {
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3}) {
    const Config config = adapted_model(family);
    const auto weights = loud_weights(config);
    const std::vector<std::vector<std::int32_t>> texts{{1, 5, 9, 2, 44, 17, 3, 60}};
    const auto plain = adapted_hidden(*weights, 8, texts, {nullptr});
    const Adapter fresh = fresh_adapter(config, {}, 1), strong = strong_adapter(config, 2);
    EXPECT_EQ(adapted_hidden(*weights, 8, texts, {&fresh}), plain) << "B is zero";
    const auto adapted = adapted_hidden(*weights, 8, texts, {&strong});
    const auto expected = adapted_hidden(*merged(*weights, strong), 8, texts, {});
    float error = 0, change = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      error = std::max(error, std::abs(adapted[i] - expected[i]));
      change = std::max(change, std::abs(plain[i] - expected[i]));
    }
    EXPECT_LT(error, 2e-4f);
    EXPECT_GT(change, 0.1f);
  }
}

// Neighbours with other adapters change no bit.
TEST(Adapter, NeighboursChangeNoBit) {
  const Config config = adapted_model(Family::qwen3);
  const auto weights = loud_weights(config);
  const Adapter one = strong_adapter(config, 2),
                two = strong_adapter(config, 3, {.rank = 5, .targets = {Linear::q, Linear::down}});
  std::vector<std::vector<std::int32_t>> texts;
  for (std::int32_t s = 0; s < 6; ++s) texts.push_back({s, 5, 9, 2 * s, 44, 17});
  const std::vector<const Adapter*> adapters{&one, nullptr, &two, &one, &one, nullptr};
  const auto together = adapted_hidden(*weights, 6, texts, adapters);
  const std::size_t each = together.size() / texts.size();
  for (std::size_t s = 0; s < texts.size(); ++s) {
    const auto alone = adapted_hidden(*weights, 6, {texts[s]}, {adapters[s]});
    EXPECT_TRUE(std::ranges::equal(alone, std::span(together).subspan(s * each, each))) << s;
  }
  EXPECT_THROW(adapted_hidden(*weights, 6, texts, {&one}), core::Error);
  Adapter wrong = one;
  wrong.layers[1][0].b.pop_back();
  EXPECT_THROW(check_adapter(config, wrong), core::Error);
  EXPECT_NE(hash(one), hash(two));
  EXPECT_EQ(hash(one), hash(Adapter(one)));
}

// Count an adapter.
TEST(Adapter, IsSmall) {
  const Config c = labs::qwen3_600m();
  std::int64_t numbers = 0;
  for (std::size_t i = 0; i < linears; ++i) {
    const LinearSize size = linear_size(c, static_cast<Linear>(i));
    numbers += c.layers * 16 * (size.in + size.out);
  }
  labs::write_value("test-adapter-size", "millions",
                    std::round(static_cast<double>(numbers) / 1e5) / 10);
  labs::write_value(
      "test-adapter-size", "percent",
      std::round(1e3 * static_cast<double>(numbers) / static_cast<double>(parameter_count(c))) /
          10);
  EXPECT_EQ(numbers, 10'092'544);
}

// Write, read, refuse.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "rose-adapter-test") {
    std::filesystem::remove_all(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void set(const std::string& key, const core::json::value& value) const {
    const auto file = path_ / "adapter_config.json";
    auto object = core::parse_json(core::read_file(file), "").as_object();
    object[key] = value;
    core::write_file_atomic(file, core::pretty_json(object));
  }

 private:
  std::filesystem::path path_;
};

TEST(Adapter, IsWrittenAndRead) {
  const Folder folder;
  const Config llama = adapted_model(Family::llama);
  const Adapter adapter = strong_adapter(llama, 2, {.rank = 3, .targets = {Linear::k, Linear::up}});
  write_adapter(folder.path(), llama, adapter);
  EXPECT_EQ(hash(read_adapter(folder.path(), llama)), hash(adapter));
  folder.set("lora_alpha", 32.0);
  EXPECT_FLOAT_EQ(read_adapter(folder.path(), llama).scale, 32.0f / 3);
  folder.set("use_rslora", true);
  EXPECT_FLOAT_EQ(read_adapter(folder.path(), llama).scale, 32.0f / std::sqrt(3.0f));

  const Config gpt2 = adapted_model(Family::gpt2);
  const Adapter three = strong_adapter(gpt2, 4, {.rank = 2});  // three different A
  write_adapter(folder.path(), gpt2, three);
  const Adapter fused = read_adapter(folder.path(), gpt2);
  EXPECT_EQ(fused.rank, 6);
  const auto weights = loud_weights(gpt2);
  const std::vector<std::vector<std::int32_t>> texts{{1, 5, 9, 2}};
  const auto a = adapted_hidden(*weights, 4, texts, {&three}),
             b = adapted_hidden(*weights, 4, texts, {&fused});
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4f);
}

// What is not plain LoRA is named.
TEST(Adapter, RefusesByName) {
  const Config llama = adapted_model(Family::llama);
  const auto refused = [&](const std::string& key, const core::json::value& value) {
    const Folder folder;
    write_adapter(folder.path(), llama, strong_adapter(llama, 2));
    folder.set(key, value);
    try {
      read_adapter(folder.path(), llama);
      return std::string("accepted");
    } catch (const core::Error& error) {
      return error.message();
    }
  };
  EXPECT_EQ(refused("base_model_name_or_path", "someone/something"), "accepted");
  EXPECT_EQ(refused("peft_type", "IA3"), "an adapter with peft_type IA3");
  EXPECT_EQ(refused("use_dora", true), "an adapter with use_dora");
  EXPECT_EQ(refused("bias", "all"), "an adapter with bias all");
  EXPECT_NE(refused("init_lora_weights", "pissa").find("pissa"), std::string::npos);
  EXPECT_NE(refused("rank_pattern", core::json::object{{"(", 3}}), "accepted");
  const Folder folder;
  write_adapter(folder.path(), llama, strong_adapter(llama, 2));
  Config shorter = llama;
  shorter.layers = 1;
  EXPECT_THROW(read_adapter(folder.path(), shorter), core::Error) << "a surplus layer";
  EXPECT_THROW(read_adapter(folder.path(), adapted_model(Family::gpt2)), core::Error);
  EXPECT_THROW(read_adapter(folder.path() / "nowhere", llama), core::Error);
}

}  // namespace
}  // namespace rose::model

namespace rose::infer {
namespace {

// Many adapters in one engine.
struct Told {
  std::vector<std::int32_t> tokens;
  std::vector<float> logprobs;
  std::string error;
  std::int64_t cached = 0;
};

using Tellings = std::vector<std::shared_ptr<Told>>;
std::shared_ptr<Told> ask(Engine& engine, std::vector<std::int32_t> prompt, std::string adapter) {
  auto told = std::make_shared<Told>();
  Request r;
  r.prompt = std::move(prompt);
  r.adapter = std::move(adapter);
  r.sampling = {.temperature = 0.7f, .seed = 5, .logprobs = 0, .max_tokens = 12};
  r.on_event = [told](const Event& e) {
    told->tokens.insert(told->tokens.end(), e.tokens.begin(), e.tokens.end());
    told->logprobs.insert(told->logprobs.end(), e.logprobs.begin(), e.logprobs.end());
    if (e.error != nullptr) told->error = e.error->what();
    told->cached = e.usage.cached;
  };
  engine.submit(std::move(r));
  return told;
}

std::unique_ptr<Runner> small_runner(std::shared_ptr<const model::WeightSet> weights) {
  return make_cpu_runner(std::move(weights),
                         {.max_tokens = 48, .max_sequences = 8, .page_size = 4, .max_loras = 2});
}

std::vector<std::int32_t> numbered(std::int32_t n) {
  std::vector<std::int32_t> prompt{n % 3};
  for (std::int32_t i = 0; i < 20; ++i) prompt.push_back((7 * i + 1) % 89);
  return prompt;
}

// Each answer is that of its own model.
TEST(AdaptedEngine, AnswersAsManyModels) {
  const model::Config config = model::adapted_model(model::Family::llama);
  const auto weights = model::loud_weights(config);
  const auto one = std::make_shared<model::Adapter>(model::strong_adapter(config, 2)),
             two = std::make_shared<model::Adapter>(model::strong_adapter(config, 3, {.rank = 3}));
  const std::map<std::string, std::shared_ptr<model::Adapter>> all{
      {"", nullptr}, {"one", one}, {"two", two}};
  Engine engine(small_runner(weights));
  engine.control().load_adapter("one", one);
  engine.control().load_adapter("two", two);
  EXPECT_EQ(engine.control().adapters(), (std::vector<std::string>{"one", "two"}));
  std::map<std::string, Tellings> together;
  for (int turn = 0; turn < 2; ++turn) {
    for (std::int32_t n = 0; n < 6; ++n)
      for (const auto& [name, adapter] : all)
        together[name].push_back(ask(engine, numbered(n), name));
    engine.run();
  }
  for (const auto& [name, adapter] : all) {
    Engine alone(small_runner(weights), {.prefix_caching = false});
    if (adapter != nullptr) alone.control().load_adapter(name, adapter);
    Engine merged(small_runner(adapter == nullptr ? weights : model::merged(*weights, *adapter)));
    for (std::int32_t n = 0; n < 6; ++n) {
      const auto expected = ask(alone, numbered(n), name), near = ask(merged, numbered(n), "");
      alone.run(), merged.run();
      for (const std::size_t turn : {0, 1}) {
        const Told& told = *together[name][turn * 6 + static_cast<std::size_t>(n)];
        EXPECT_EQ(told.tokens, expected->tokens);
        EXPECT_EQ(told.logprobs, expected->logprobs) << "not a bit depends on the company";
        EXPECT_EQ(told.tokens, near->tokens);
        EXPECT_TRUE(turn == 0 || told.cached > 0);
      }
    }
  }
}

// Names, slots, and requests that outlive their adapter's name.
TEST(AdaptedEngine, KeepsAnAdapterWhileItIsUsed) {
  const model::Config config = model::adapted_model(model::Family::qwen3);
  const auto weights = model::loud_weights(config);
  const auto one = std::make_shared<model::Adapter>(model::strong_adapter(config, 2)),
             two = std::make_shared<model::Adapter>(model::strong_adapter(config, 3));
  Engine engine(small_runner(weights));
  Control control = engine.control();
  EXPECT_THROW(ask(engine, {1}, "one"), core::Error) << "nobody has loaded it";
  control.load_adapter("one", one);
  EXPECT_THROW(control.load_adapter("one", two), core::Error) << "the name is taken";
  EXPECT_THROW(control.load_adapter("other", std::make_shared<model::Adapter>(model::strong_adapter(
                                                 model::adapted_model(model::Family::gpt2), 1))),
               core::Error);
  const auto whole = ask(engine, numbered(1), "one");
  engine.run();
  const auto cut = ask(engine, numbered(1), "one");
  for (int i = 0; i < 4; ++i) engine.step();
  control.unload_adapter("one");
  EXPECT_THROW(control.unload_adapter("one"), core::Error);
  EXPECT_THROW(ask(engine, {1}, "one"), core::Error);
  control.load_adapter("two", two);  // the second slot: the first is still in use
  EXPECT_THROW(control.load_adapter("three", one), core::Error);
  engine.run();
  EXPECT_EQ(cut->tokens, whole->tokens);
  EXPECT_EQ(cut->error, "");
  control.load_adapter("one", two);  // the name has another meaning now
  const auto other = ask(engine, numbered(1), "one"), same = ask(engine, numbered(1), "two");
  engine.run();
  EXPECT_EQ(other->tokens, same->tokens);
  EXPECT_NE(other->tokens, whole->tokens);
}

// Adapters on a GPU: bits in company, and nearness to the merged model.
using GpuAdaptersTest = kernels::gpu::GpuTest;

model::Config gpu_adapted_model(model::Family family) {
  model::Config c = model::adapted_model(family);
  c.head_dim = 64, c.hidden = 256, c.ffn = 320, c.max_positions = 512;
  return c;
}

std::unique_ptr<Runner> gpu_adapted_runner(const std::shared_ptr<const model::WeightSet>& weights,
                                           std::int64_t loras, bool graphs = true) {
  return make_gpu_runner(weights, {.tokens = 256,
                                   .sequences = 8,
                                   .pages = 400,
                                   .memory_utilization = 0.5,
                                   .graphs = graphs,
                                   .max_loras = loras,
                                   .max_lora_rank = 8});
}

TEST_F(GpuAdaptersTest, GpuAnswersAsManyModels) {
  for (const auto family : {model::Family::gpt2, model::Family::llama, model::Family::qwen3}) {
    const model::Config config = gpu_adapted_model(family);
    auto weights = model::random_weights(config, 5);
    const auto one = std::make_shared<model::Adapter>(model::strong_adapter(config, 2)),
               two =
                   std::make_shared<model::Adapter>(model::strong_adapter(config, 3, {.rank = 3}));
    const std::map<std::string, std::shared_ptr<model::Adapter>> all{
        {"", nullptr}, {"one", one}, {"two", two}};
    Engine engine(gpu_adapted_runner(weights, 2)), plain(gpu_adapted_runner(weights, 0));
    EXPECT_THROW(plain.control().load_adapter("one", one), core::Error);
    engine.control().load_adapter("one", one);
    engine.control().load_adapter("two", two);
    std::map<std::string, Tellings> together;
    for (std::int32_t n = 0; n < 6; ++n)
      for (const auto& [name, adapter] : all)
        together[name].push_back(ask(engine, numbered(n), name));
    engine.run();
    for (const auto& [name, adapter] : all) {
      Engine alone(gpu_adapted_runner(weights, 2, false));
      if (adapter != nullptr) alone.control().load_adapter(name, adapter);
      for (std::int32_t n = 0; n < 6; ++n) {
        const auto expected = ask(alone, numbered(n), name);
        alone.run();
        const Told& told = *together[name][static_cast<std::size_t>(n)];
        EXPECT_EQ(told.tokens, expected->tokens) << name << n;
        EXPECT_EQ(told.logprobs, expected->logprobs) << name << n;
        if (adapter != nullptr) continue;
        const auto bare = ask(plain, numbered(n), "");
        plain.run();
        EXPECT_EQ(told.tokens, bare->tokens);
        EXPECT_EQ(told.logprobs, bare->logprobs) << "the same bits without room for adapters";
      }
    }
  }
}

TEST_F(GpuAdaptersTest, GpuIsNearTheCpu) {
  const model::Config config = gpu_adapted_model(model::Family::qwen3);
  const auto weights = model::random_weights(config, 5);
  const auto one = std::make_shared<model::Adapter>(model::strong_adapter(config, 2));
  const auto score = [&](std::unique_ptr<Runner> runner, const std::string& name) {
    Engine engine(std::move(runner));
    if (!name.empty()) engine.control().load_adapter(name, one);
    std::vector<float> logprobs;
    Request r;
    r.prompt = numbered(1);
    r.adapter = name;
    r.sampling = {.prompt_logprobs = 0, .max_tokens = 1};
    r.on_event = [&](const Event& e) {
      if (e.of_prompt) logprobs.insert(logprobs.end(), e.logprobs.begin(), e.logprobs.end());
    };
    engine.submit(std::move(r));
    engine.run();
    return logprobs;
  };
  const auto gpu = score(gpu_adapted_runner(weights, 2), "one"),
             cpu = score(small_runner(weights), "one"), plain = score(small_runner(weights), "");
  float error = 0, change = 0;
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    error = std::max(error, std::abs(gpu[i] - cpu[i]));
    change = std::max(change, std::abs(plain[i] - cpu[i]));
  }
  std::printf("largest difference of logprobs %.4f where the adapter changes them by %.4f\n",
              static_cast<double>(error), static_cast<double>(change));
  EXPECT_LT(error, 0.1f * change);
}

}  // namespace
}  // namespace rose::infer
