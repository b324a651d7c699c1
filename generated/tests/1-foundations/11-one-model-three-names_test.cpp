// Tests of the chapter "One model, three names".

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
#include "rose/model/files/assemble.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/checkpoint_parts.h"
#include "rose/model/files/config.h"
#include "rose/model/files/names.h"
#include "rose/model/files/tensor_source.h"

namespace rose::model {
namespace {

// Halves and pairs rotate alike.
TEST(Names, RowsOfAHeadOfEight) {
  std::vector<std::int64_t> rows;
  for (std::int64_t r = 0; r < 8; ++r) rows.push_back(paired_row(r, 8));
  EXPECT_EQ(rows, (std::vector<std::int64_t>{0, 2, 4, 6, 1, 3, 5, 7}));
}

TEST(Names, HalvesAndPairsRotateAlike) {
  constexpr std::size_t width = 64, half = width / 2;
  std::mt19937 bits(1);
  std::normal_distribution<double> draw;
  std::vector<double> halves(width), pairs(width);
  for (std::size_t r = 0; r < width; ++r) {
    halves[r] = draw(bits);
    pairs[static_cast<std::size_t>(paired_row(static_cast<std::int64_t>(r), width))] = halves[r];
  }
  for (std::size_t j = 0; j < half; ++j) {
    const double angle = 17.0 / std::pow(10000.0, static_cast<double>(j) / half);
    const double c = std::cos(angle), s = std::sin(angle);
    const auto rotate = [&](double& x, double& y) {
      const double turned = x * c - y * s;
      y = x * s + y * c;
      x = turned;
    };
    rotate(halves[j], halves[j + half]);
    rotate(pairs[2 * j], pairs[2 * j + 1]);
  }
  for (std::size_t r = 0; r < width; ++r) {
    ASSERT_EQ(halves[r],
              pairs[static_cast<std::size_t>(paired_row(static_cast<std::int64_t>(r), width))]);
  }
}

// A permutation forgotten on both sides shows with distance, on one side at once.
TEST(Names, AForgottenPermutationShowsWithDistance) {
  constexpr std::size_t width = 64, half = width / 2;
  std::mt19937 bits(3);
  std::normal_distribution<double> draw;
  std::vector<double> q(width), k(width);
  for (double& x : q) x = draw(bits);
  for (double& x : k) x = draw(bits);
  const auto as_filed = [](const std::vector<double>& x) {
    std::vector<double> y(width);
    for (std::size_t r = 0; r < width; ++r) {
      y[static_cast<std::size_t>(paired_row(static_cast<std::int64_t>(r), width))] = x[r];
    }
    return y;
  };
  const auto score = [](std::vector<double> query, const std::vector<double>& key,
                        double distance) {
    double sum = 0;
    for (std::size_t j = 0; j < half; ++j) {  // turn the query in halves, as a Llama does
      const double angle = distance / std::pow(10000.0, static_cast<double>(j) / half);
      const double c = std::cos(angle), s = std::sin(angle), x = query[j], y = query[j + half];
      sum += (x * c - y * s) * key[j] + (x * s + y * c) * key[j + half];
    }
    return sum;
  };
  EXPECT_NEAR(score(as_filed(q), as_filed(k), 0), score(q, k, 0), 1e-9);
  EXPECT_GT(std::fabs(score(as_filed(q), as_filed(k), 100) - score(q, k, 100)), 1);
  EXPECT_GT(std::fabs(score(as_filed(q), k, 0) - score(q, k, 0)), 1);
}

// Published models have their published sizes.
Config config_of(const std::string& json) {
  return parse_hf_config(core::as_object(core::parse_json(json, "test"), "test"));
}

std::int64_t count(const std::string& json) {
  std::int64_t total = 0;
  for (const ExpectedTensor& tensor : expected_tensors(config_of(json))) {
    total += *element_count(tensor.shape);
  }
  return total;
}

const std::string gpt2_json = R"({"model_type": "gpt2"})";
const std::string smollm2_json = R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
  "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
  "num_key_value_heads": 3, "tie_word_embeddings": true, "rope_theta": 100000, "rope_scaling": null,
  "max_position_embeddings": 8192, "rms_norm_eps": 1e-05, "eos_token_id": 2, "bos_token_id": 1})";
const std::string llama32_json = R"({"model_type": "llama", "vocab_size": 128256,
  "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
  "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": true,
  "rope_theta": 500000.0, "max_position_embeddings": 131072, "eos_token_id": [128001, 128008],
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"}})";
const std::string qwen25_json = R"({"model_type": "qwen2", "hidden_size": 896,
  "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
  "num_key_value_heads": 2, "tie_word_embeddings": true, "use_sliding_window": false,
  "sliding_window": 32768, "max_window_layers": 21, "rope_theta": 1000000.0})";
const std::string qwen3_json = R"({"model_type": "qwen3", "hidden_size": 1024,
  "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "head_dim": 128,
  "num_key_value_heads": 8, "tie_word_embeddings": true, "sliding_window": null})";

TEST(Names, PublishedModelsHaveTheirSizes) {
  EXPECT_EQ(count(gpt2_json), 124'439'808);
  EXPECT_EQ(50257 * 768, 38'597'376);  // what an untied head would add
  EXPECT_EQ(count(smollm2_json), 134'515'008);
  EXPECT_EQ(count(llama32_json), 1'235'814'400);
  EXPECT_EQ(count(qwen25_json), 494'032'768);
  EXPECT_EQ(count(qwen3_json), 596'049'920);
}

// A configuration is read, written and read again.
TEST(Config, ReadsWhatFilesSay) {
  const Config llama = config_of(llama32_json);
  EXPECT_EQ(llama.rope_scaling.kind, RopeScaling::Kind::llama3);
  EXPECT_EQ(llama.eos_ids, (std::vector<std::int32_t>{128001, 128008}));
  EXPECT_EQ(llama.bos_id, 1);  // absent: the reference's default
  const Config qwen = config_of(qwen3_json);
  EXPECT_EQ(qwen.heads * qwen.head_dim, 2 * qwen.hidden);
  EXPECT_TRUE(qwen.qk_norm && !qwen.qkv_bias && qwen.eos_ids.empty());
  EXPECT_TRUE(config_of(qwen25_json).qkv_bias);
  const Config gpt2 = config_of(gpt2_json);
  EXPECT_EQ(gpt2.activation, Activation::gelu_tanh);
  EXPECT_EQ(gpt2.ffn, 3072);
  const Config yarn = config_of(R"({"model_type": "qwen2", "rope_parameters":
    {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}})");
  EXPECT_EQ(yarn.rope_scaling.original_max_positions, 32768);
  EXPECT_FLOAT_EQ(yarn.rope_scaling.attention_factor, 1.1386294f);  // 0.1 ln 4 + 1
  for (const Config& config : {llama, qwen, gpt2, yarn, config_of(smollm2_json)}) {
    EXPECT_EQ(parse_hf_config(to_hf_config(config)), config);
  }
}

TEST(Config, Llama3DividesSlowFrequencies) {
  const std::vector<float> divisors = llama3_frequency_divisors(config_of(llama32_json));
  ASSERT_EQ(divisors.size(), 32u);
  EXPECT_TRUE(std::is_sorted(divisors.begin(), divisors.end()));
  // 8192 / 4 positions are one turn of pair 14.1, 8192 of pair 17.5: 0..14 stay, 18.. are divided.
  EXPECT_EQ(divisors[14], 1.0f);
  EXPECT_GT(divisors[15], 1.0f);
  EXPECT_LT(divisors[17], 32.0f);
  EXPECT_EQ(divisors[18], 32.0f);
}

// What would be computed wrongly is refused by name.
std::string refusal_of(const std::string& json) {
  try {
    config_of(json);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Config, RefusesByName) {
  const auto expect = [](const std::string& type, const std::string& members,
                         const std::string& answer) {
    const std::string json = "{\"model_type\": \"" + type + "\"" + members + "}";
    EXPECT_THAT(refusal_of(json), testing::HasSubstr(answer)) << json;
  };
  EXPECT_THAT(refusal_of("{}"), testing::HasSubstr("\"model_type\" is missing"));
  expect("mamba", "", "models of type 'mamba' are not supported yet");
  expect("qwen3_moe", "", "mixture-of-experts models ('qwen3_moe') are not supported yet");
  expect("mixtral", "", "mixture-of-experts");
  expect("llama", R"(, "num_local_experts": 8)", "mixture-of-experts");
  expect("llama", R"(, "architectures": ["LlamaForSequenceClassification"])", "with the head of");
  expect("llama", R"(, "partial_rotary_factor": 0.5)", "rotating only a part");
  expect("llama", R"(, "hidden_act": "relu")", "activation 'relu'");
  expect("llama", R"(, "rope_scaling": {"type": "dynamic", "factor": 2})", "type 'dynamic'");
  expect("llama", R"(, "rope_parameters": {"full_attention": {}})", "differs between layers");
  expect("qwen2", R"(, "use_sliding_window": true)", "sliding-window attention");
  expect("qwen3", R"(, "layer_types": ["sliding_attention"])", "sliding-window attention");
  expect("gpt2", R"(, "scale_attn_by_inverse_layer_idx": true)", "inverse_layer_idx");
  expect("gpt2", R"(, "activation_function": "relu")", "activation 'relu'");
  expect("llama", R"(, "num_attention_heads": 0)", "number of attention heads is 0");
  expect("llama", R"(, "num_key_value_heads": 5)", "cannot be shared among 5");
  expect("llama", R"(, "num_hidden_layers": 1000000000)", "number of layers is 1000000000");
  expect("llama", R"(, "head_dim": 63)", "cannot be rotated in pairs");
  expect("llama", R"(, "rms_norm_eps": -1)", "epsilon is -1");
  expect("llama", R"(, "hidden_size": "big")", "must be an integer");
  expect("gpt2", R"(, "n_head": 7)", "do not divide a hidden size");
}

// A damaged checkpoint is refused, a complete one is assembled.
struct Small {
  Config config = config_of(R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 8,
    "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1})");
  std::map<std::string, std::vector<float>> data;
  StoredByName stored;

  Small() {
    for (const ExpectedTensor& tensor : expected_tensors(config)) {
      const Place place = place_in_hf(config, tensor.name);
      std::vector<float>& values = data[place.name];
      values.resize(static_cast<std::size_t>(*element_count(tensor.shape)));
      std::iota(values.begin(), values.end(), static_cast<float>(data.size()) * 100.0f);
      put(place.name, tensor.shape, std::as_bytes(std::span(values)));
    }
  }
  void put(const std::string& name, std::vector<std::int64_t> shape,
           std::span<const std::byte> bytes) {
    stored[name] = {
        {name, "F32", kernels::DType::f32, std::move(shape), 0, bytes}, nullptr, "file"};
  }
  std::string refusal() const {
    try {
      assemble(config, hf_naming(config), stored, "file");
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST(Assemble, AcceptsACompleteCheckpointInPlace) {
  const Small small;
  const auto tensors = assemble(small.config, hf_naming(small.config), small.stored, "file");
  EXPECT_EQ(tensors.size(), expected_tensors(small.config).size());
  EXPECT_EQ(tensors[0].name, "embed.weight");
  EXPECT_EQ(tensors[0].data,
            reinterpret_cast<const std::byte*>(small.data.at("model.embed_tokens.weight").data()));
}

// Each kind of damage has its answer.
TEST(Assemble, RefusesWhatIsMissingMisshapenOrTooMuch) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  Small missing;
  missing.stored.erase(q);
  EXPECT_THAT(missing.refusal(), testing::HasSubstr("'" + q + "' is missing"));
  Small misshapen;
  misshapen.stored[q].tensor.shape = {4, 16};
  EXPECT_THAT(misshapen.refusal(),
              testing::HasSubstr("has shape [4, 16], the model's configuration implies [8, 8]"));
  Small extra;
  extra.put("model.layers.1.self_attn.q_proj.weight", {8, 8}, extra.stored[q].tensor.bytes);
  EXPECT_THAT(extra.refusal(), testing::HasSubstr("has no place in a llama"));
  Small integers;
  integers.stored[q].tensor.dtype.reset();
  integers.stored[q].tensor.type = "I64";
  EXPECT_THAT(integers.refusal(), testing::HasSubstr("stored as I64"));
  Small tolerated;
  tolerated.put("model.layers.0.self_attn.rotary_emb.inv_freq", {2}, {});
  EXPECT_EQ(tolerated.refusal(), "");
}

TEST(Assemble, CopiesWhatIsNotAligned) {
  Small small;
  Stored& norm = small.stored["model.norm.weight"];
  std::string shifted(33, '\0');
  std::memcpy(shifted.data() + 1, norm.tensor.bytes.data(), 32);
  norm.tensor.bytes = std::as_bytes(std::span(shifted)).subspan(1);
  const auto tensors = assemble(small.config, hf_naming(small.config), small.stored, "file");
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [](const auto& t) { return t.name == "norm.weight"; });
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->data) % 4, 0u);
  EXPECT_EQ(std::memcmp(found->data, shifted.data() + 1, 32), 0);
}

// A hub cache folder leads to its snapshot.
struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("rose-hub-" + std::to_string(std::random_device{}()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name, std::ios::binary) << text;
    return path / name;
  }
};

TEST(Hub, FindsTheSnapshotThatMainNames) {
  const Folder hub;
  const std::string repository = "models--org--small--name";
  hub.write(repository + "/snapshots/abc/config.json", smollm2_json);
  hub.write(repository + "/snapshots/def/config.json", gpt2_json);
  EXPECT_THROW(resolve_checkpoint(hub.path / repository), core::Error);  // which of the two?
  hub.write(repository + "/refs/main", "def\n");
  EXPECT_EQ(resolve_checkpoint(hub.path / repository), hub.path / repository / "snapshots/def");
  EXPECT_EQ(checkpoint_name(hub.path / repository / "snapshots/def"), "org/small/name");
  EXPECT_EQ(describe_checkpoint(hub.path / repository).config.family, Family::gpt2);
  hub.write(repository + "/refs/main", "../../../etc");
  EXPECT_THROW(resolve_checkpoint(hub.path / repository), core::Error);
}

TEST(Hub, SaysWhatAFolderLacks) {
  const Folder folder;
  const auto answer = [&] {
    try {
      open_checkpoint(folder.path);
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(answer(), testing::HasSubstr("neither config.json nor a single GGUF file"));
  folder.write("config.json", gpt2_json);
  EXPECT_THAT(answer(), testing::HasSubstr("no weights (model.safetensors)"));
  folder.write("pytorch_model.bin", "pickle");
  EXPECT_THAT(answer(), testing::HasSubstr("runs the code in it"));
}

}  // namespace
}  // namespace rose::model
