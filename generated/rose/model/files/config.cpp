// Check a configuration, and read and write config.json.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/model/files/config.h"
#include "rose/model/files/stored_tensor.h"

namespace rose::model {

using core::Code;
using core::Error;
namespace json = core::json;

std::string_view name(Family family) {
  switch (family) {
    case Family::gpt2: return "gpt2";
    case Family::llama: return "llama";
    case Family::qwen2: return "qwen2";
    case Family::qwen3: return "qwen3";
  }
  return "unknown";
}

// Refuse impossible numbers before anything is allocated for them.
void validate(const Config& config) {
  const auto impossible = [](std::string message) {
    return Error(Code::corrupt, std::move(message)).in("model configuration");
  };
  const auto between = [&](std::int64_t value, std::int64_t least, std::int64_t most,
                           std::string_view what) {
    if (value < least || value > most) {
      throw impossible(
          fmt::format("{} is {}, and must lie between {} and {}", what, value, least, most));
    }
  };
  between(config.vocab_size, 1, 1 << 26, "the vocabulary size");
  between(config.layers, 1, 4096, "the number of layers");
  between(config.heads, 1, 1 << 16, "the number of attention heads");
  between(config.kv_heads, 1, config.heads, "the number of key/value heads");
  between(config.head_dim, 1, 1 << 16, "the head dimension");
  between(config.hidden, 1, 1 << 24, "the hidden size");
  between(config.ffn, 1, 1 << 26, "the feed-forward size");
  between(config.max_positions, 1, 1 << 30, "the context length");
  if (config.heads % config.kv_heads != 0) {
    throw impossible(fmt::format("{} query heads cannot be shared among {} key/value heads",
                                 config.heads, config.kv_heads));
  }
  const bool rotary = config.family != Family::gpt2;
  if (rotary && config.head_dim % 2 != 0) {
    throw impossible(
        fmt::format("a head dimension of {} cannot be rotated in pairs", config.head_dim));
  }
  if (!rotary && config.heads * config.head_dim != config.hidden) {
    throw impossible(
        fmt::format("{} heads do not divide a hidden size of {}", config.heads, config.hidden));
  }
  if (!(config.norm_eps >= 0.0f && config.norm_eps < 1.0f)) {
    throw impossible(fmt::format("the norm's epsilon is {}", config.norm_eps));
  }
  if (rotary && !(config.rope_theta > 1.0f && std::isfinite(config.rope_theta))) {
    throw impossible(fmt::format("the rotary base is {}", config.rope_theta));
  }
  // A stretched context has a factor and a length.
  const RopeScaling& rope = config.rope_scaling;
  if (rope.kind != RopeScaling::Kind::none &&
      !(rope.factor >= 1.0f && std::isfinite(rope.factor))) {
    throw impossible(fmt::format("the rotary scaling factor is {}", rope.factor));
  }
  if (rope.kind == RopeScaling::Kind::llama3 || rope.kind == RopeScaling::Kind::yarn) {
    between(rope.original_max_positions, 1, 1 << 30, "the context length before scaling");
    if (!(rope.attention_factor > 0.0f && std::isfinite(rope.attention_factor))) {
      throw impossible(fmt::format("the attention factor is {}", rope.attention_factor));
    }
  }
  if (rope.kind == RopeScaling::Kind::llama3 &&
      !(rope.low_freq_factor > 0.0f && rope.high_freq_factor > rope.low_freq_factor)) {
    throw impossible(fmt::format("frequency factors of {} and {} leave no range between them",
                                 rope.low_freq_factor, rope.high_freq_factor));
  }
  if (rope.kind == RopeScaling::Kind::yarn &&
      !(rope.beta_slow > 0.0f && rope.beta_fast > rope.beta_slow)) {
    throw impossible(fmt::format("betas of {} and {} leave no range between them", rope.beta_slow,
                                 rope.beta_fast));
  }
}

// Divide slow rotations, keep fast ones, blend between.
std::vector<float> llama3_frequency_divisors(const Config& config) {
  const RopeScaling& rope = config.rope_scaling;
  std::vector<float> divisors(static_cast<std::size_t>(config.head_dim / 2), 1.0f);
  if (rope.kind != RopeScaling::Kind::llama3) return divisors;
  const auto original = static_cast<double>(rope.original_max_positions);
  const double factor = rope.factor, low = rope.low_freq_factor, high = rope.high_freq_factor;
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const double wavelength =
        2.0 * std::numbers::pi * std::pow(double{config.rope_theta}, exponent);
    if (wavelength > original / low) {
      divisors[i] = rope.factor;
    } else if (wavelength >= original / high) {
      const double smooth = (original / wavelength - low) / (high - low);
      divisors[i] = static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth));
    }
  }
  return divisors;
}

namespace {

// Refuse by name what would otherwise be computed wrongly.
[[noreturn]] void unsupported(std::string what, std::string_view where) {
  throw Error(Code::unsupported, std::move(what) + " not supported yet")
      .in(std::string(where))
      .hint("GPT-2, Llama, Qwen2 and Qwen3 models can be run");
}

Family family_of(const json::object& object, std::string_view where) {
  const std::string_view type = core::get_string(object, "model_type", where);
  for (const std::string_view key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (core::get_int_or(object, key, 0, where) > 1) {
      unsupported(fmt::format("mixture-of-experts models ({}) are", printable(type)), where);
    }
  }
  if (type.find("moe") != std::string_view::npos || type == "mixtral") {
    unsupported(fmt::format("mixture-of-experts models ({}) are", printable(type)), where);
  }
  for (const Family family : {Family::gpt2, Family::llama, Family::qwen2, Family::qwen3}) {
    if (type == name(family)) return family;
  }
  unsupported(fmt::format("models of type {} are", printable(type)), where);
}

void refuse_variants(const json::object& object, std::string_view where) {
  if (core::find(object, "architectures") != nullptr) {
    for (const json::value& item : core::get_array(object, "architectures", where)) {
      const std::string_view name = item.is_string() ? std::string_view(item.get_string()) : "";
      if (!name.ends_with("ForCausalLM") && !name.ends_with("LMHeadModel") &&
          !name.ends_with("Model")) {
        unsupported(fmt::format("models with the head of {} are", printable(name)), where);
      }
    }
  }
  if (core::get_double_or(object, "partial_rotary_factor", 1.0, where) != 1.0) {
    unsupported("rotating only a part of each head (\"partial_rotary_factor\") is", where);
  }
}

void refuse_sliding_window(const json::object& object, std::int64_t layers,
                           std::string_view where) {
  bool active = false;
  if (const json::value* types = core::find(object, "layer_types"); types && types->is_array()) {
    for (const json::value& type : types->get_array()) {
      active = active || (type.is_string() && type.get_string() == "sliding_attention");
    }
  } else if (core::get_bool_or(object, "use_sliding_window", false, where)) {
    active = core::get_int_or(object, "sliding_window", 4096, where) > 0 &&
             core::get_int_or(object, "max_window_layers", 28, where) < layers;
  }
  if (active) unsupported("sliding-window attention is", where);
}

// Read the rotary scaling in its old and its new spelling.
float get_float(const json::object& object, std::string_view key, double fallback,
                std::string_view where) {
  return static_cast<float>(core::get_double_or(object, key, fallback, where));
}

void read_rope(const json::object& object, Config& config, std::string_view where) {
  config.rope_theta = get_float(object, "rope_theta", 10000.0, where);
  std::string key = "rope_parameters";
  if (core::find(object, key) == nullptr) key = "rope_scaling";
  if (core::find(object, key) == nullptr) return;
  const json::object& rope = core::get_object(object, key, where);
  for (const auto& [name, value] : rope) {
    if (value.is_object()) unsupported("rotary scaling that differs between layers is", where);
  }
  config.rope_theta = get_float(rope, "rope_theta", config.rope_theta, where);
  if (core::get_double_or(rope, "partial_rotary_factor", 1.0, where) != 1.0) {
    unsupported("rotating only a part of each head (\"partial_rotary_factor\") is", where);
  }
  const std::string_view old_type = core::get_string_or(rope, "type", "default", where);
  const std::string_view type = core::get_string_or(rope, "rope_type", old_type, where);
  using Kind = RopeScaling::Kind;
  RopeScaling& scaling = config.rope_scaling;
  if (type == "default" || type == "none") return;
  if (type == "linear") scaling.kind = Kind::linear;
  if (type == "llama3") scaling.kind = Kind::llama3;
  if (type == "yarn") scaling.kind = Kind::yarn;
  if (scaling.kind == Kind::none) {
    unsupported(fmt::format("rotary scaling of type {} is", printable(type)), where);
  }
  // Take its numbers, with the defaults of the reference.
  if (scaling.kind == Kind::linear) {
    scaling.factor = static_cast<float>(core::get_double(rope, "factor", where));
    return;
  }
  scaling.original_max_positions = core::get_int_or(
      object, "original_max_position_embeddings",
      core::get_int_or(rope, "original_max_position_embeddings", config.max_positions, where),
      where);
  if (scaling.kind == Kind::llama3) {
    scaling.factor = static_cast<float>(core::get_double(rope, "factor", where));
    scaling.low_freq_factor = static_cast<float>(core::get_double(rope, "low_freq_factor", where));
    scaling.high_freq_factor =
        static_cast<float>(core::get_double(rope, "high_freq_factor", where));
    return;
  }
  const double stretched =
      static_cast<double>(config.max_positions) /
      static_cast<double>(std::max<std::int64_t>(1, scaling.original_max_positions));
  const double factor = core::get_double_or(rope, "factor", stretched, where);
  const auto magnitude = [&](double scale) {
    return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
  };
  const double mscale = core::get_double_or(rope, "mscale", 0.0, where);
  const double mscale_all = core::get_double_or(rope, "mscale_all_dim", 0.0, where);
  const double implied = mscale != 0.0 && mscale_all != 0.0
                             ? magnitude(mscale) / magnitude(mscale_all)
                             : magnitude(1.0);
  scaling.factor = static_cast<float>(factor);
  scaling.attention_factor = get_float(rope, "attention_factor", implied, where);
  scaling.beta_fast = get_float(rope, "beta_fast", 32.0, where);
  scaling.beta_slow = get_float(rope, "beta_slow", 1.0, where);
  scaling.truncate = core::get_bool_or(rope, "truncate", true, where);
}

// Read the numbers of a GPT-2.
void read_gpt2(const json::object& object, Config& config, std::string_view where) {
  for (const auto& [key, usual] :
       {std::pair{"scale_attn_weights", true}, std::pair{"scale_attn_by_inverse_layer_idx", false},
        std::pair{"add_cross_attention", false}}) {
    if (core::get_bool_or(object, key, usual, where) != usual) {
      unsupported(fmt::format("\"{}\": {} is", key, !usual), where);
    }
  }
  config.vocab_size = core::get_int_or(object, "vocab_size", 50257, where);
  config.layers = core::get_int_or(object, "n_layer", 12, where);
  config.heads = core::get_int_or(object, "n_head", 12, where);
  config.hidden = core::get_int_or(object, "n_embd", 768, where);
  config.max_positions = core::get_int_or(object, "n_positions", 1024, where);
  const bool sane = config.hidden > 0 && config.hidden < (1 << 24);  // else validate() will say so
  config.ffn = core::get_int_or(object, "n_inner", sane ? 4 * config.hidden : 0, where);
  config.kv_heads = config.heads;
  config.head_dim = config.heads > 0 ? config.hidden / config.heads : 0;
  config.norm = NormKind::layernorm;
  config.norm_eps = get_float(object, "layer_norm_epsilon", 1e-5, where);
  config.tied_head = core::get_bool_or(object, "tie_word_embeddings", true, where);
  config.qkv_bias = config.o_bias = config.mlp_bias = true;
  const std::string_view activation =
      core::get_string_or(object, "activation_function", "gelu_new", where);
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast") {
    config.activation = Activation::gelu_tanh;
  } else if (activation == "gelu") {
    config.activation = Activation::gelu;
  } else {
    unsupported(fmt::format("the activation {} is", printable(activation)), where);
  }
}

// Read the numbers of a Llama or Qwen.
struct Defaults {
  std::int64_t vocab_size, hidden, ffn, layers, heads, kv_heads, head_dim, max_positions;
  double norm_eps;
};

Defaults defaults_of(Family family) {  // those of the reference's configuration classes
  if (family == Family::llama) return {32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6};
  if (family == Family::qwen2) return {151936, 4096, 22016, 32, 32, 32, 0, 32768, 1e-6};
  return {151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6};
}

void read_llama(const json::object& object, Config& config, std::string_view where) {
  const Defaults usual = defaults_of(config.family);
  const auto integer = [&](std::string_view key, std::int64_t fallback) {
    return core::get_int_or(object, key, fallback, where);
  };
  config.vocab_size = integer("vocab_size", usual.vocab_size);
  config.hidden = integer("hidden_size", usual.hidden);
  config.ffn = integer("intermediate_size", usual.ffn);
  config.layers = integer("num_hidden_layers", usual.layers);
  config.heads = integer("num_attention_heads", usual.heads);
  // An explicit null means "as many as query heads", an absent key the family's default.
  const bool null_heads = object.contains("num_key_value_heads") || usual.kv_heads == 0;
  config.kv_heads = integer("num_key_value_heads", null_heads ? config.heads : usual.kv_heads);
  const std::int64_t split = config.heads > 0 ? config.hidden / config.heads : 0;
  config.head_dim = integer("head_dim", usual.head_dim != 0 ? usual.head_dim : split);
  config.max_positions = integer("max_position_embeddings", usual.max_positions);
  config.norm_eps = get_float(object, "rms_norm_eps", usual.norm_eps, where);
  config.tied_head = core::get_bool_or(object, "tie_word_embeddings", false, where);
  config.qk_norm = config.family == Family::qwen3;
  config.qkv_bias = config.family == Family::qwen2;
  if (config.family != Family::qwen2) {
    config.qkv_bias = config.o_bias = core::get_bool_or(object, "attention_bias", false, where);
  }
  if (config.family == Family::llama) {
    config.mlp_bias = core::get_bool_or(object, "mlp_bias", false, where);
  }
  const std::string_view activation = core::get_string_or(object, "hidden_act", "silu", where);
  if (activation != "silu" && activation != "swish") {
    unsupported(fmt::format("the activation {} is", printable(activation)), where);
  }
  refuse_sliding_window(object, config.layers, where);
  read_rope(object, config, where);
}

}  // namespace

// Read a config.json.
namespace {

std::int32_t token_id(const json::value& value, std::string_view key, std::string_view where) {
  if (value.is_int64() && value.get_int64() >= 0 && value.get_int64() < (1 << 26)) {
    return static_cast<std::int32_t>(value.get_int64());
  }
  throw Error(Code::corrupt, fmt::format("\"{}\" must hold token ids", key)).in(std::string(where));
}

}  // namespace

std::vector<std::int32_t> hf_token_ids(const json::object& object, std::string_view key,
                                       std::string_view where) {
  const json::value* value = core::find(object, key);
  std::vector<std::int32_t> ids;
  if (value == nullptr) return ids;
  if (!value->is_array()) return {token_id(*value, key, where)};
  for (const json::value& item : value->get_array()) ids.push_back(token_id(item, key, where));
  return ids;
}

Config parse_hf_config(const json::object& object, std::string_view where) {
  Config config;
  config.family = family_of(object, where);
  refuse_variants(object, where);
  if (config.family == Family::gpt2) {
    read_gpt2(object, config, where);
  } else {
    read_llama(object, config, where);
  }
  config.eos_ids = hf_token_ids(object, "eos_token_id", where);
  const std::vector<std::int32_t> bos = hf_token_ids(object, "bos_token_id", where);
  if (!bos.empty()) config.bos_id = bos.front();
  // A key that is absent, rather than null, means the reference's default.
  const bool gpt2 = config.family == Family::gpt2, llama = config.family == Family::llama;
  if (!object.contains("eos_token_id") && gpt2) config.eos_ids = {50256};
  if (!object.contains("eos_token_id") && llama) config.eos_ids = {2};
  if (!object.contains("bos_token_id") && gpt2) config.bos_id = 50256;
  if (!object.contains("bos_token_id") && llama) config.bos_id = 1;
  validate(config);
  return config;
}

// Write a config.json.
namespace {

/// The float's shortest decimal, as a double: 1e-05 rather than 9.999999747378752e-06.
double shortest(float value) {
  std::array<char, 32> text{};
  const auto written = std::to_chars(text.data(), text.data() + text.size(), value);
  double parsed = 0;
  std::from_chars(text.data(), written.ptr, parsed);
  return parsed;
}

json::object rope_parameters(const Config& config) {
  const RopeScaling& rope = config.rope_scaling;
  json::object out;
  out["rope_theta"] = shortest(config.rope_theta);
  using Kind = RopeScaling::Kind;
  if (rope.kind == Kind::none) return out["rope_type"] = "default", out;
  out["factor"] = shortest(rope.factor);
  if (rope.kind == Kind::linear) return out["rope_type"] = "linear", out;
  out["original_max_position_embeddings"] = rope.original_max_positions;
  if (rope.kind == Kind::llama3) {
    out["rope_type"] = "llama3";
    out["low_freq_factor"] = shortest(rope.low_freq_factor);
    out["high_freq_factor"] = shortest(rope.high_freq_factor);
    return out;
  }
  out["rope_type"] = "yarn";
  out["attention_factor"] = shortest(rope.attention_factor);
  out["beta_fast"] = shortest(rope.beta_fast);
  out["beta_slow"] = shortest(rope.beta_slow);
  if (!rope.truncate) out["truncate"] = false;
  return out;
}

}  // namespace

json::object to_hf_config(const Config& config) {
  json::object out;
  out["model_type"] = name(config.family);
  if (config.family == Family::gpt2) {
    out["architectures"] = json::array{"GPT2LMHeadModel"};
    out["activation_function"] = config.activation == Activation::gelu ? "gelu" : "gelu_new";
    out["n_embd"] = config.hidden;
    out["n_head"] = config.heads;
    out["n_inner"] = config.ffn;
    out["n_layer"] = config.layers;
    out["n_positions"] = config.max_positions;
    out["layer_norm_epsilon"] = shortest(config.norm_eps);
  } else {
    const bool llama = config.family == Family::llama;
    const std::string_view head = llama                            ? "LlamaForCausalLM"
                                  : config.family == Family::qwen2 ? "Qwen2ForCausalLM"
                                                                   : "Qwen3ForCausalLM";
    out["architectures"] = json::array{head};
    out["hidden_act"] = "silu";
    out["hidden_size"] = config.hidden;
    out["intermediate_size"] = config.ffn;
    out["num_hidden_layers"] = config.layers;
    out["num_attention_heads"] = config.heads;
    out["num_key_value_heads"] = config.kv_heads;
    out["head_dim"] = config.head_dim;
    out["max_position_embeddings"] = config.max_positions;
    out["rms_norm_eps"] = shortest(config.norm_eps);
    if (config.family != Family::qwen2) out["attention_bias"] = config.qkv_bias;
    if (llama) out["mlp_bias"] = config.mlp_bias;
    if (!llama) out["use_sliding_window"] = false;
    // Spell the rotary numbers in the new and in the old way.
    json::object rope = rope_parameters(config);
    out["rope_theta"] = rope["rope_theta"];
    if (config.rope_scaling.kind != RopeScaling::Kind::none) {
      json::object old = rope;
      old.erase("rope_theta");
      out["rope_scaling"] = std::move(old);
    }
    out["rope_parameters"] = std::move(rope);
  }
  out["vocab_size"] = config.vocab_size;
  out["tie_word_embeddings"] = config.tied_head;
  out["bos_token_id"] = config.bos_id ? json::value(*config.bos_id) : json::value(nullptr);
  if (config.eos_ids.size() == 1) {
    out["eos_token_id"] = config.eos_ids.front();
  } else if (!config.eos_ids.empty()) {
    out["eos_token_id"] = json::array(config.eos_ids.begin(), config.eos_ids.end());
  } else {
    out["eos_token_id"] = nullptr;
  }
  return out;
}

}  // namespace rose::model
