// Say where a canonical tensor lies in a foreign file.

#include <fmt/format.h>

#include <array>
#include <utility>

#include "rose/core/error.h"
#include "rose/model/files/names.h"

namespace rose::model {

// List what a configuration implies.
std::vector<ExpectedTensor> expected_tensors(const Config& c) {
  std::vector<ExpectedTensor> out;
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  std::string layer;
  const auto linear = [&](std::string_view what, std::int64_t rows, std::int64_t cols, bool bias) {
    out.push_back({fmt::format("{}{}.weight", layer, what), {rows, cols}});
    if (bias) out.push_back({fmt::format("{}{}.bias", layer, what), {rows}});
  };
  const auto norm = [&](std::string_view what, std::int64_t width) {
    out.push_back({fmt::format("{}{}.weight", layer, what), {width}});
    if (c.norm == NormKind::layernorm)
      out.push_back({fmt::format("{}{}.bias", layer, what), {width}});
  };
  linear("embed", c.vocab_size, c.hidden, false);
  if (c.family == Family::gpt2) linear("pos_embed", c.max_positions, c.hidden, false);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    layer = fmt::format("layers.{}.", i);
    norm("attn_norm", c.hidden);
    linear("attn.q", q, c.hidden, c.qkv_bias);
    linear("attn.k", kv, c.hidden, c.qkv_bias);
    linear("attn.v", kv, c.hidden, c.qkv_bias);
    if (c.qk_norm) norm("attn.q_norm", c.head_dim);
    if (c.qk_norm) norm("attn.k_norm", c.head_dim);
    linear("attn.o", c.hidden, q, c.o_bias);
    norm("ffn_norm", c.hidden);
    if (c.family != Family::gpt2) linear("ffn.gate", c.ffn, c.hidden, c.mlp_bias);
    linear("ffn.up", c.ffn, c.hidden, c.mlp_bias);
    linear("ffn.down", c.hidden, c.ffn, c.mlp_bias);
  }
  layer.clear();
  norm("norm", c.hidden);
  if (!c.tied_head) linear("head", c.vocab_size, c.hidden, false);
  return out;
}

namespace {

// Three spellings of every part of a model.
struct Names {
  std::string_view canonical, gpt2, llama, gguf;
};

constexpr std::array<Names, 4> outer = {{
    {"embed", "transformer.wte", "model.embed_tokens", "token_embd"},
    {"pos_embed", "transformer.wpe", "", "position_embd"},
    {"norm", "transformer.ln_f", "model.norm", "output_norm"},
    {"head", "lm_head", "lm_head", "output"},
}};

constexpr std::array<Names, 11> inner = {{
    {"attn_norm", "ln_1", "input_layernorm", "attn_norm"},
    {"attn.q", "attn.c_attn", "self_attn.q_proj", "attn_q"},
    {"attn.k", "attn.c_attn", "self_attn.k_proj", "attn_k"},
    {"attn.v", "attn.c_attn", "self_attn.v_proj", "attn_v"},
    {"attn.q_norm", "", "self_attn.q_norm", "attn_q_norm"},
    {"attn.k_norm", "", "self_attn.k_norm", "attn_k_norm"},
    {"attn.o", "attn.c_proj", "self_attn.o_proj", "attn_output"},
    {"ffn_norm", "ln_2", "post_attention_layernorm", "ffn_norm"},
    {"ffn.gate", "", "mlp.gate_proj", "ffn_gate"},
    {"ffn.up", "mlp.c_fc", "mlp.up_proj", "ffn_up"},
    {"ffn.down", "mlp.c_proj", "mlp.down_proj", "ffn_down"},
}};

// Take a canonical name apart.
struct Split {
  std::string_view layer;  // "3", or empty outside the layers
  const Names* names;
  std::string_view kind;  // "weight" or "bias"
};

Split split(std::string_view canonical) {
  Split out{};
  std::string_view stem = canonical;
  const std::size_t dot = stem.rfind('.');
  if (dot != std::string_view::npos) {
    out.kind = stem.substr(dot + 1);
    stem = stem.substr(0, dot);
  }
  const auto look = [&](const auto& table) {
    for (const Names& names : table) {
      if (names.canonical == stem) out.names = &names;
    }
  };
  if (stem.starts_with("layers.")) {
    stem.remove_prefix(7);
    out.layer = stem.substr(0, stem.find('.'));
    stem.remove_prefix(std::min(stem.size(), out.layer.size() + 1));
    look(inner);
  } else {
    look(outer);
  }
  if (out.names == nullptr) {
    throw core::Error(core::Code::internal,
                      fmt::format("'{}' is no canonical tensor name", canonical));
  }
  return out;
}

/// 0, 1, 2 for q, k, v; -1 for anything else.
int qkv_part(const Names& names) {
  const std::string_view name = names.canonical;
  return name == "attn.q" ? 0 : name == "attn.k" ? 1 : name == "attn.v" ? 2 : -1;
}

}  // namespace

// Spell a canonical name as Hugging Face and as GGUF do.
Place place_in_hf(const Config& config, std::string_view canonical) {
  const auto [layer, names, kind] = split(canonical);
  Place place;
  if (config.family != Family::gpt2) {
    place.name = layer.empty() ? fmt::format("{}.{}", names->llama, kind)
                               : fmt::format("model.layers.{}.{}.{}", layer, names->llama, kind);
    return place;
  }
  if (layer.empty()) {
    place.name = fmt::format("{}.{}", names->gpt2, kind);
    return place;
  }
  place.name = fmt::format("transformer.h.{}.{}.{}", layer, names->gpt2, kind);
  const bool linear = names->canonical.find('.') != std::string_view::npos;
  place.transposed = linear && kind == "weight";  // Conv1D keeps [in, out]
  if (qkv_part(*names) >= 0) {
    place.part = qkv_part(*names);
    place.parts = 3;
  }
  return place;
}

Place place_in_gguf(const Config& config, std::string_view canonical) {
  const auto [layer, names, kind] = split(canonical);
  Place place;
  place.name = layer.empty() ? fmt::format("{}.{}", names->gguf, kind)
                             : fmt::format("blk.{}.{}.{}", layer, names->gguf, kind);
  const int part = qkv_part(*names);
  if (config.family == Family::gpt2 && part >= 0) {
    place.name = fmt::format("blk.{}.attn_qkv.{}", layer, kind);
    place.part = part;
    place.parts = 3;
  }
  if (config.family == Family::llama && part == 0) place.paired_heads = config.heads;
  if (config.family == Family::llama && part == 1) place.paired_heads = config.kv_heads;
  return place;
}

// Know what may be there and is not needed.
bool is_tolerated_in_hf(const Config& config, std::string_view name) {
  if (name == "lm_head.weight") return config.tied_head;
  if (config.family == Family::gpt2) {
    return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
  }
  return name.ends_with(".rotary_emb.inv_freq");
}

bool is_tolerated_in_gguf(const Config& config, std::string_view name) {
  return config.family == Family::llama && name == "rope_freqs.weight";  // read as configuration
}

}  // namespace rose::model
