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

#include "labs/evidence/values.h"
#include "labs/inference/qwen3.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/core/rng.h"
#include "rose/model/adapter.h"
#include "rose/model/files/budget.h"
#include "rose/model/forward.h"

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
