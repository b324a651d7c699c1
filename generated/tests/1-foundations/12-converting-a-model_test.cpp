// Tests of the chapter "Converting a model".

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
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/convert.h"
#include "rose/model/files/gguf.h"
#include "rose/model/files/safetensors.h"
#include "rose/model/files/write_rows.h"

namespace rose::model {
namespace {

// Write a small model to convert.
struct Workshop {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("rose-convert-" + std::to_string(std::random_device{}()));
  Workshop() {
    std::filesystem::create_directories(path / "source");
    const std::string json = R"({"model_type": "llama", "vocab_size": 64, "hidden_size": 64,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "bos_token_id": 1, "eos_token_id": [2, 3]})";
    core::write_file_atomic(path / "source" / "config.json", json);
    const Config config = parse_hf_config(core::as_object(core::parse_json(json, ""), ""));
    std::vector<PlannedTensor> tensors;
    std::vector<float> values;
    std::mt19937 bits(9);
    std::normal_distribution<float> draw(0.0f, 0.05f);
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
      tensors.push_back({place_in_hf(config, tensor.name).name, kernels::DType::f32, tensor.shape});
      for (std::int64_t i = *element_count(tensor.shape); i > 0; --i) values.push_back(draw(bits));
    }
    std::string file = safetensors_header(tensors);
    file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    core::write_file_atomic(path / "source" / "model.safetensors", file);
  }
  ~Workshop() { std::filesystem::remove_all(path); }

  std::vector<std::string> contents() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

ConvertOptions weights_only(std::optional<kernels::DType> dtype = std::nullopt) {
  return {.dtype = dtype, .overwrite = false, .tokenizer = false, .progress = {}};
}

// There and back is the same model.
TEST(Convert, ThereAndBackIsTheSameModel) {
  const Workshop shop;
  const ConvertResult there = convert(shop.path / "source", shop.path / "m.gguf", weights_only());
  EXPECT_EQ(there.kept_f32, 0);
  convert(shop.path / "m.gguf", shop.path / "again", weights_only());
  const Checkpoint before = open_checkpoint(shop.path / "source");
  const Checkpoint between = open_checkpoint(shop.path / "m.gguf");
  const Checkpoint after = open_checkpoint(shop.path / "again");
  EXPECT_EQ(before.config, between.config);
  EXPECT_EQ(before.config, after.config);
  ASSERT_EQ(before.tensors.size(), after.tensors.size());
  for (const TensorInfo& tensor : before.tensors) {
    for (const Checkpoint* other : {&between, &after}) {
      const TensorInfo& same = other->at(tensor.name);
      ASSERT_EQ(same.bytes, tensor.bytes);
      EXPECT_EQ(std::memcmp(same.data, tensor.data, tensor.bytes), 0) << tensor.name;
    }
  }
}

// Rows that do not fit stay as they are.
TEST(Convert, RowsThatDoNotFitStayInF32) {
  const Workshop shop;
  const auto result =
      convert(shop.path / "source", shop.path / "m.gguf", weights_only(kernels::DType::q4_1));
  EXPECT_EQ(result.kept_f32, 2);
  const Checkpoint model = open_checkpoint(shop.path / "m.gguf");
  EXPECT_EQ(model.at("layers.0.ffn.down.weight").dtype, kernels::DType::f32);
  EXPECT_EQ(model.at("layers.0.ffn.up.weight").dtype, kernels::DType::q4_1);
  EXPECT_EQ(model.at("embed.weight").dtype, kernels::DType::q8_0);
  EXPECT_EQ(model.at("norm.weight").dtype, kernels::DType::f32);
  EXPECT_EQ(896 % 256, 128);  // Qwen2.5-0.5B in blocks of 256: every row of its width misses,
  EXPECT_EQ(4864 % 256, 0);   // and only those of the down projection fit
}

// A conversion that ends early leaves nothing.
TEST(Convert, LeavesNothingWhenItEndsEarly) {
  const Workshop shop;
  const std::vector<std::string> before = shop.contents();
  for (const char* target : {"m.gguf", "folder"}) {
    int stop = 0;
    for (bool finished = false; !finished; ++stop) {
      ConvertOptions options = weights_only();
      int reports = 0;
      options.progress = [&](std::uint64_t, std::uint64_t, std::string_view) {
        if (++reports > stop) throw core::Error(core::Code::cancelled, "stopped");
      };
      try {
        convert(shop.path / "source", shop.path / target, options);
        finished = true;
      } catch (const core::Error& error) {
        ASSERT_EQ(error.code(), core::Code::cancelled);
        ASSERT_EQ(shop.contents(), before) << target << " after " << stop;
      }
    }
    EXPECT_GT(stop, 10);
    std::filesystem::remove_all(shop.path / target);
  }
}

// Requests that make no sense are refused before anything is written.
TEST(Convert, RefusesBeforeItWrites) {
  const Workshop shop;
  const auto answer = [&](const std::string& to, std::optional<kernels::DType> dtype,
                          bool tokenizer) {
    ConvertOptions options = weights_only(dtype);
    options.tokenizer = tokenizer;
    try {
      convert(shop.path / "source", shop.path / to, options);
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::vector<std::string> before = shop.contents();
  EXPECT_THAT(answer("m.gguf", kernels::DType::q4_k, false),
              testing::HasSubstr("writing q4_k weights is not supported"));
  EXPECT_THAT(answer("folder", kernels::DType::q8_0, false),
              testing::HasSubstr("into a Hugging Face folder"));
  EXPECT_THAT(answer("source", std::nullopt, false),
              testing::HasSubstr("the target exists already"));
  EXPECT_THAT(answer("no/such/m.gguf", std::nullopt, false), testing::HasSubstr("no such folder"));
  EXPECT_THAT(answer("m.gguf", std::nullopt, true), testing::HasSubstr("no tokenizer.json"));
  EXPECT_EQ(shop.contents(), before);
}

}  // namespace
}  // namespace rose::model
