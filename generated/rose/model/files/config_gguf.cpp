// Read a configuration from GGUF metadata, and write it there.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rose/core/error.h"
#include "rose/kernels/quant.h"
#include "rose/model/files/config.h"
#include "rose/model/files/gguf.h"

namespace rose::model {
namespace {

using core::Code;
using core::Error;

// Look up the keys of one architecture.
struct Keys {
  const GgufFile& file;
  std::string prefix;  // "llama."

  [[noreturn]] void missing(std::string_view key) const {
    throw Error(Code::corrupt, fmt::format("the metadata lacks '{}{}'", prefix, key))
        .in(file.where());
  }
  [[noreturn]] void unsupported(std::string what) const {
    throw Error(Code::unsupported, std::move(what) + " not supported yet")
        .in(file.where())
        .hint("GPT-2, Llama, Qwen2 and Qwen3 models can be run");
  }
  /// A number, or an array that repeats it for every layer, as some writers do.
  std::optional<std::int64_t> integer(std::string_view key) const {
    const GgufValue* value = file.value(prefix + std::string(key));
    if (value != nullptr && std::holds_alternative<GgufArray>(*value)) {
      const auto numbers = *file.integers(prefix + std::string(key));
      if (numbers.empty()) missing(key);
      if (std::adjacent_find(numbers.begin(), numbers.end(), std::not_equal_to<>()) !=
          numbers.end()) {
        unsupported(fmt::format("a '{}{}' that differs between layers is", prefix, key));
      }
      return numbers.front();
    }
    return file.integer(prefix + std::string(key));
  }
  std::int64_t need(std::string_view key) const {
    const auto value = integer(key);
    if (!value) missing(key);
    return *value;
  }
  std::optional<double> number(std::string_view key) const {
    return file.number(prefix + std::string(key));
  }
  float number_or(std::string_view key, double fallback) const {
    return static_cast<float>(number(key).value_or(fallback));
  }
};

// Refuse by name what the keys say and this program does not do.
Family family_of(const GgufFile& file) {
  const auto architecture = file.text("general.architecture");
  const Keys keys{file, std::string(architecture.value_or("")) + "."};
  if (!architecture) {
    throw Error(Code::corrupt, "the metadata lacks 'general.architecture'").in(file.where());
  }
  if (file.text("general.type").value_or("model") != "model") {
    keys.unsupported(
        fmt::format("GGUF files of type {} are", printable(*file.text("general.type"))));
  }
  if (architecture->find("moe") != std::string_view::npos ||
      keys.integer("expert_count").value_or(0) > 0) {
    keys.unsupported(fmt::format("mixture-of-experts models ({}) are", printable(*architecture)));
  }
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3}) {
    if (*architecture == name(family)) return family;
  }
  keys.unsupported(fmt::format("models of architecture {} are", printable(*architecture)));
}

void refuse_variants(const Keys& keys) {
  if (keys.integer("attention.sliding_window").value_or(0) > 0) {
    keys.unsupported("sliding-window attention is");
  }
  for (const std::string_view key :
       {"logit_scale", "embedding_scale", "residual_scale", "attention.scale",
        "attention.clamp_kqv", "attention.max_alibi_bias", "attn_logit_softcapping",
        "final_logit_softcapping"}) {
    if (keys.file.value(keys.prefix + std::string(key)) != nullptr) {
      keys.unsupported(fmt::format("the variant that '{}{}' describes is", keys.prefix, key));
    }
  }
  for (const std::string_view tensor : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
    if (keys.file.find(tensor) != nullptr) keys.unsupported("rotary scaling of type 'longrope' is");
  }
}

// Read the rotary scaling.

/// Llama 3's rule is not in the metadata: the file holds the divisors that came out of it. We
/// look for the rule that gives them, and keep our own keys beside the tensor when we write one.
void read_divisors(const Keys& keys, const StoredTensor& tensor, Config& config) {
  const auto half = static_cast<std::size_t>(config.head_dim / 2);
  if (element_count(tensor.shape) != config.head_dim / 2 || tensor.dtype != kernels::DType::f32) {
    keys.unsupported(fmt::format("'{}' with other than {} F32 numbers is", tensor.name, half));
  }
  std::vector<float> found(half);
  std::memcpy(found.data(), tensor.bytes.data(), half * sizeof(float));
  if (std::all_of(found.begin(), found.end(), [](float x) { return x == 1.0f; })) return;
  RopeScaling& rope = config.rope_scaling;
  rope.kind = RopeScaling::Kind::llama3;
  rope.factor = *std::max_element(found.begin(), found.end());
  const Keys own{keys.file, "rosellm.rope.llama3."};
  rope.factor = own.number_or("factor", rope.factor);
  rope.low_freq_factor = own.number_or("low_freq_factor", 1.0);
  rope.high_freq_factor = own.number_or("high_freq_factor", 4.0);
  const std::int64_t first = own.integer("original_context_length").value_or(8192);
  for (const std::int64_t original :
       {first, std::int64_t{4096}, std::int64_t{2048}, std::int64_t{16384}, std::int64_t{32768}}) {
    rope.original_max_positions = original;
    if (original < 1 || original > (1 << 30)) continue;
    const std::vector<float> implied = llama3_frequency_divisors(config);
    if (std::equal(found.begin(), found.end(), implied.begin(),
                   [](float a, float b) { return std::fabs(a - b) <= 1e-4f * std::fabs(b); })) {
      return;
    }
  }
  keys.unsupported("rotary divisors ('rope_freqs.weight') that no Llama 3 rule gives are");
}

void read_rope(const Keys& keys, Config& config) {
  using Kind = RopeScaling::Kind;
  RopeScaling& rope = config.rope_scaling;
  config.rope_theta = keys.number_or("rope.freq_base", 10000.0);
  if (const auto rotated = keys.integer("rope.dimension_count");
      rotated && *rotated != config.head_dim) {
    keys.unsupported(fmt::format("rotating {} of {} dimensions is", *rotated, config.head_dim));
  }
  const auto type = keys.file.text(keys.prefix + "rope.scaling.type").value_or("");
  const double factor =
      keys.number("rope.scaling.factor").value_or(keys.number_or("rope.scale_linear", 0.0));
  if (type == "linear" || (type.empty() && factor > 0.0 && factor != 1.0)) {
    rope.kind = Kind::linear;
    rope.factor = static_cast<float>(factor);
  } else if (type == "yarn") {
    // Read the numbers of YaRN.
    rope.kind = Kind::yarn;
    rope.factor = static_cast<float>(factor);
    rope.original_max_positions =
        keys.integer("rope.scaling.original_context_length").value_or(config.max_positions);
    const double implied = factor <= 1.0 ? 1.0 : 0.1 * std::log(factor) + 1.0;
    rope.attention_factor = keys.number_or("rope.scaling.yarn_attn_factor", implied);
    rope.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", 32.0);
    rope.beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", 1.0);
    rope.truncate = keys.file.boolean("rosellm.rope.yarn.truncate").value_or(true);
    if (keys.number_or("rope.scaling.yarn_ext_factor", 1.0) != 1.0f ||
        keys.number_or("rope.scaling.attn_factor", 1.0) != 1.0f ||
        keys.number_or("rope.scaling.yarn_log_multiplier", 0.0) != 0.0f) {
      keys.unsupported("this variant of YaRN rotary scaling is");
    }
  } else if (!type.empty() && type != "none") {
    keys.unsupported(fmt::format("rotary scaling of type {} is", printable(type)));
  }
  if (const StoredTensor* divisors = keys.file.find("rope_freqs.weight")) {
    if (rope.kind != Kind::none) keys.unsupported("two rotary scalings at once are");
    read_divisors(keys, *divisors, config);
  }
}

}  // namespace

// Read a configuration from an open GGUF file.
Config config_from_gguf(const GgufFile& file) {
  Config config;
  config.family = family_of(file);
  const Keys keys{file, std::string(name(config.family)) + "."};
  refuse_variants(keys);
  const StoredTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    throw Error(Code::corrupt, "there is no embedding table 'token_embd.weight'").in(file.where());
  }
  config.vocab_size = embedding->shape[0];
  config.layers = keys.need("block_count");
  config.heads = keys.need("attention.head_count");
  config.kv_heads = keys.integer("attention.head_count_kv").value_or(config.heads);
  config.hidden = keys.need("embedding_length");
  config.ffn = keys.need("feed_forward_length");
  config.max_positions = keys.need("context_length");
  const std::int64_t split = config.heads > 0 ? config.hidden / config.heads : 0;
  config.head_dim = keys.integer("attention.key_length").value_or(split);
  if (keys.integer("attention.value_length").value_or(config.head_dim) != config.head_dim) {
    keys.unsupported("keys and values of different width are");
  }
  if (config.family == Family::gpt2) {
    config.norm = NormKind::layernorm;
    config.norm_eps = keys.number_or("attention.layer_norm_epsilon", 1e-5);
    config.activation = Activation::gelu_tanh;  // the format knows no other
  } else {
    config.norm_eps = keys.number_or("attention.layer_norm_rms_epsilon", 1e-6);
  }
  config.tied_head = file.find("output.weight") == nullptr;
  config.qkv_bias = file.find("blk.0.attn_q.bias") || file.find("blk.0.attn_qkv.bias");
  config.o_bias = file.find("blk.0.attn_output.bias") != nullptr;
  config.mlp_bias = file.find("blk.0.ffn_down.bias") != nullptr;
  config.qk_norm = config.family == Family::qwen3;
  for (const std::string_view key : {"eos", "eot", "eom"}) {
    const auto id = file.integer(fmt::format("tokenizer.ggml.{}_token_id", key));
    if (!id || *id < 0 || *id >= config.vocab_size) continue;
    const auto token = static_cast<std::int32_t>(*id);
    if (std::count(config.eos_ids.begin(), config.eos_ids.end(), token) == 0) {
      config.eos_ids.push_back(token);
    }
  }
  const auto bos = file.integer("tokenizer.ggml.bos_token_id");
  if (bos && *bos >= 0 && *bos < config.vocab_size) config.bos_id = static_cast<std::int32_t>(*bos);
  validate(config);
  if (config.family != Family::gpt2) read_rope(keys, config);
  validate(config);
  return config;
}

// Write a configuration as GGUF metadata.
GgufMetadata gguf_config(const Config& config) {
  if (config.family == Family::gpt2 && config.activation != Activation::gelu_tanh) {
    throw Error(Code::unsupported, "GGUF cannot say that a GPT-2 uses the exact GELU")
        .hint(
            "its readers would silently compute the tanh approximation: keep this model in "
            "Hugging Face's layout");
  }
  const std::string arch(name(config.family));
  GgufMetadata out;
  out.emplace_back("general.architecture", arch);
  const auto count = [&](std::string_view key, std::int64_t value) {
    out.emplace_back(fmt::format("{}.{}", arch, key), static_cast<std::uint32_t>(value));
  };
  const auto number = [&](std::string_view key, float value) {
    out.emplace_back(fmt::format("{}.{}", arch, key), value);
  };
  count("block_count", config.layers);
  count("context_length", config.max_positions);
  count("embedding_length", config.hidden);
  count("feed_forward_length", config.ffn);
  count("attention.head_count", config.heads);
  if (config.family == Family::gpt2) {
    number("attention.layer_norm_epsilon", config.norm_eps);
    return out;
  }
  count("attention.head_count_kv", config.kv_heads);
  count("attention.key_length", config.head_dim);
  count("attention.value_length", config.head_dim);
  count("rope.dimension_count", config.head_dim);
  count("vocab_size", config.vocab_size);
  number("attention.layer_norm_rms_epsilon", config.norm_eps);
  number("rope.freq_base", config.rope_theta);
  // Write the rotary scaling; Llama 3's rule under keys of our own.
  const RopeScaling& rope = config.rope_scaling;
  const auto scaling = [&](std::string_view key) {
    return fmt::format("{}.rope.scaling.{}", arch, key);
  };
  if (rope.kind == RopeScaling::Kind::linear) {
    out.emplace_back(scaling("type"), "linear");
    out.emplace_back(scaling("factor"), rope.factor);
  } else if (rope.kind == RopeScaling::Kind::yarn) {
    out.emplace_back(scaling("type"), "yarn");
    out.emplace_back(scaling("factor"), rope.factor);
    out.emplace_back(scaling("original_context_length"),
                     static_cast<std::uint32_t>(rope.original_max_positions));
    out.emplace_back(scaling("yarn_attn_factor"), rope.attention_factor);
    out.emplace_back(scaling("yarn_beta_fast"), rope.beta_fast);
    out.emplace_back(scaling("yarn_beta_slow"), rope.beta_slow);
    if (!rope.truncate) out.emplace_back("rosellm.rope.yarn.truncate", false);
  } else if (rope.kind == RopeScaling::Kind::llama3) {
    const std::string own = "rosellm.rope.llama3.";
    out.emplace_back(own + "factor", rope.factor);
    out.emplace_back(own + "low_freq_factor", rope.low_freq_factor);
    out.emplace_back(own + "high_freq_factor", rope.high_freq_factor);
    out.emplace_back(own + "original_context_length",
                     static_cast<std::uint32_t>(rope.original_max_positions));
  }
  return out;
}

}  // namespace rose::model
