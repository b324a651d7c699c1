// Describe a model by the numbers that its weights do not carry.

#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rose/model/files/gguf.h"

namespace rose::model {

// Name the families and what differs between them.
enum class Family : std::uint8_t { gpt2, llama, qwen2, qwen3 };
enum class Activation : std::uint8_t { gelu, gelu_tanh, silu };
enum class NormKind : std::uint8_t { layernorm, rmsnorm };

/// "gpt2", "llama", "qwen2" or "qwen3": both formats spell it so.
std::string_view name(Family family);

// Say how rotary frequencies are stretched for long contexts.
struct RopeScaling {
  enum class Kind : std::uint8_t { none, linear, llama3, yarn };

  Kind kind = Kind::none;
  float factor = 1.0f;                      ///< by how much the context was extended
  std::int64_t original_max_positions = 0;  ///< context length before the extension (llama3, yarn)
  float low_freq_factor = 1.0f;             ///< llama3: slower than original/low: divided
  float high_freq_factor = 4.0f;            ///< llama3: faster than original/high: kept
  float beta_fast = 32.0f;                  ///< yarn: turns more often: kept
  float beta_slow = 1.0f;                   ///< yarn: turns less often: divided by factor
  bool truncate = true;                     ///< yarn: the ramp's ends are whole dimensions
  float attention_factor = 1.0f;            ///< multiplies cos and sin; 1 unless yarn

  bool operator==(const RopeScaling&) const = default;
};

// Hold everything the forward pass needs to know.
struct Config {
  Family family = Family::llama;
  std::int64_t vocab_size = 0;  ///< rows of the embedding table; may exceed the tokenizer's
  std::int64_t layers = 0;
  std::int64_t heads = 0;          ///< query heads
  std::int64_t kv_heads = 0;       ///< key/value heads; divides heads
  std::int64_t head_dim = 0;       ///< width of one head; heads * head_dim need not be hidden
  std::int64_t hidden = 0;         ///< width of the residual stream
  std::int64_t ffn = 0;            ///< width inside the feed-forward block
  std::int64_t max_positions = 0;  ///< longest context the model was made for

  NormKind norm = NormKind::rmsnorm;
  float norm_eps = 1e-5f;
  float rope_theta = 10000.0f;  ///< unused by GPT-2, whose positions are learned
  RopeScaling rope_scaling;
  Activation activation = Activation::silu;

  bool tied_head = false;  ///< the output head is the embedding table
  bool qkv_bias = false;
  bool o_bias = false;    ///< bias of the attention's output projection
  bool mlp_bias = false;  ///< biases of the feed-forward projections
  bool qk_norm = false;   ///< RMSNorm on every query and key head before RoPE

  std::vector<std::int32_t> eos_ids;  ///< any of these ends a generation
  std::optional<std::int32_t> bos_id;

  bool operator==(const Config&) const = default;
};

// Read and write it in both formats.

/// Throws core::Error when a value is impossible (no heads, kv_heads that do not divide heads, …).
void validate(const Config& config);

/// From a Hugging Face `config.json`; `where` names the file in errors. What this program cannot
/// run is refused by name.
Config parse_hf_config(const boost::json::object& json, std::string_view where = "config.json");

/// From GGUF metadata and the presence of tensors (biases, an untied head, frequency factors).
Config config_from_gguf(const GgufFile& file);

/// The metadata that says the same in a GGUF file. Throws unsupported when none can.
GgufMetadata gguf_config(const Config& config);

/// The `config.json` that `transformers` reads back as this model.
boost::json::object to_hf_config(const Config& config);

/// A token id or a list of them, as `eos_token_id` may be; empty when absent or null.
std::vector<std::int32_t> hf_token_ids(const boost::json::object& object, std::string_view key,
                                       std::string_view where);

/// What Llama 3 divides each rotary frequency by, [head_dim / 2]: 1 for the fast ones, factor for
/// the slow ones, and a blend between.
std::vector<float> llama3_frequency_divisors(const Config& config);

}  // namespace rose::model
