// Read and write adapters in the layout of PEFT.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <regex>
#include <set>
#include <string>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/kernels/quant.h"
#include "rose/model/adapter.h"
#include "rose/model/files/names.h"
#include "rose/model/files/safetensors.h"

namespace rose::model {
namespace {

namespace json = core::json;

constexpr std::string_view kConfigFile = "adapter_config.json";
constexpr std::string_view kTensorFile = "adapter_model.safetensors";

// Name a matrix as PEFT does.
struct Module {
  std::string name;         ///< in the original model: "model.layers.0.self_attn.q_proj"
  int part = 0, parts = 1;  ///< which rows of its B are ours
};

Module module_of(const Config& config, std::int64_t layer, Linear which) {
  const Place place = place_in_hf(
      config, fmt::format("layers.{}.{}.weight", layer, linear_size(config, which).name));
  constexpr std::string_view suffix = ".weight";
  return {place.name.substr(0, place.name.size() - suffix.size()), place.part, place.parts};
}

std::string tensor_name(const std::string& module, char half) {
  return fmt::format("base_model.model.{}.lora_{}.weight", module, half);
}

// Read ranks and scales from the configuration.
struct Settings {
  std::int64_t rank = 0;
  double alpha = 0;
  bool root = false;  ///< the scale is alpha / sqrt(rank)
  std::vector<std::pair<std::regex, double>> ranks, alphas;

  static double look(const auto& patterns, const std::string& module, double otherwise) {
    for (const auto& [pattern, value] : patterns)
      if (std::regex_match(module, pattern)) return value;
    return otherwise;
  }
  double scale_of(const std::string& module) const {
    const double r = look(ranks, module, static_cast<double>(rank));
    return look(alphas, module, alpha) / (root ? std::sqrt(r) : r);
  }
};

std::vector<std::pair<std::regex, double>> patterns(const json::object& config, const char* key,
                                                    const std::string& where) {
  std::vector<std::pair<std::regex, double>> out;
  const json::value* const found = core::find(config, key);
  if (found == nullptr) return out;
  for (const auto& [name, value] : core::as_object(*found, where)) {
    try {
      out.emplace_back(std::regex(fmt::format("(.*\\.)?({})", std::string(name))),
                       value.to_number<double>());
    } catch (const std::exception& error) {
      throw core::Error(core::Code::corrupt, fmt::format("{}: {}", std::string(name), error.what()))
          .in(where);
    }
  }
  return out;
}

// Refuse what is not plain LoRA.
void refuse_relatives(const json::object& config, const std::string& where) {
  const auto refuse = [&](std::string what) {
    throw core::Error(core::Code::unsupported, fmt::format("an adapter with {}", what))
        .in(where)
        .hint("plain LoRA of the linear layers is understood");
  };
  if (const auto type = core::get_string(config, "peft_type", where); type != "LORA")
    refuse(fmt::format("peft_type {}", type));
  for (const char* key : {"use_dora", "lora_bias", "use_qalora", "use_bdlora"})
    if (core::get_bool_or(config, key, false, where)) refuse(key);
  if (const auto bias = core::get_string_or(config, "bias", "none", where); bias != "none")
    refuse(fmt::format("bias {}", bias));
  for (const char* key : {"alora_invocation_tokens", "layer_replication"})
    if (core::find(config, key) != nullptr) refuse(key);
  const json::value* const start = core::find(config, "init_lora_weights");
  constexpr std::array<std::string_view, 2> harmless{"gaussian", "orthogonal"};
  if (start != nullptr && start->is_string() &&
      std::ranges::find(harmless, std::string_view(start->as_string())) == harmless.end())
    refuse(fmt::format("init_lora_weights {}, which changes the model itself",
                       std::string_view(start->as_string())));
}

// Read one pair of tensors.
struct Pair {
  std::int64_t rank = 0;
  double scale = 0;
  LowRank values{};
};

std::vector<float> floats(const StoredTensor& tensor, const std::string& where) {
  if (!tensor.dtype || tensor.shape.size() != 2) {
    throw core::Error(core::Code::corrupt,
                      fmt::format("{} is no matrix of numbers", printable(tensor.name)))
        .in(where);
  }
  const std::int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  const std::size_t row = kernels::row_bytes(*tensor.dtype, cols);
  for (std::int64_t r = 0; r < rows; ++r)
    kernels::dequantize_row(*tensor.dtype, tensor.bytes.data() + static_cast<std::size_t>(r) * row,
                            out.data() + r * cols, cols);
  return out;
}

Pair read_pair(const SafetensorsFile& file, const StoredTensor& a, const StoredTensor& b,
               const Module& module, const LinearSize& size) {
  Pair pair{.rank = a.shape.empty() ? 0 : a.shape[0]};
  const std::vector<std::int64_t> a_shape{pair.rank, size.in},
      b_shape{size.out * module.parts, pair.rank};
  if (pair.rank < 1 || a.shape != a_shape || b.shape != b_shape) {
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("the pair of {} does not fit a matrix of {} by {}",
                                  printable(module.name), size.out * module.parts, size.in))
        .in(file.where());
  }
  pair.values.a = floats(a, file.where());
  const std::vector<float> b_all = floats(b, file.where());
  const std::int64_t each = size.out * pair.rank, first = module.part * each;
  pair.values.b.assign(b_all.begin() + first, b_all.begin() + first + each);
  return pair;
}

// Fill up to one rank, and move scales that differ into B.
void normalise(Pair& pair, const LinearSize& size, std::int64_t rank, float scale) {
  const auto from = static_cast<std::size_t>(pair.rank), to = static_cast<std::size_t>(rank);
  LowRank out;
  out.a = std::move(pair.values.a);
  out.a.resize(to * static_cast<std::size_t>(size.in), 0.0f);
  out.b.assign(static_cast<std::size_t>(size.out) * to, 0.0f);
  const bool scaled = static_cast<float>(pair.scale) != scale;
  for (std::size_t n = 0; n < static_cast<std::size_t>(size.out); ++n) {
    for (std::size_t r = 0; r < from; ++r) {
      const float b = pair.values.b[n * from + r];
      out.b[n * to + r] = scaled ? static_cast<float>(b * pair.scale / scale) : b;
    }
  }
  pair.values = std::move(out);
}

}  // namespace

// Read a folder.
Adapter read_adapter(const std::filesystem::path& folder, const Config& config) {
  const std::string where = (folder / kConfigFile).string();
  const json::value document = core::parse_json(core::read_file(folder / kConfigFile), where);
  const json::object& object = core::as_object(document, where);
  refuse_relatives(object, where);
  Settings settings{.rank = core::get_int(object, "r", where),
                    .alpha = core::get_double(object, "lora_alpha", where),
                    .root = core::get_bool_or(object, "use_rslora", false, where),
                    .ranks = patterns(object, "rank_pattern", where),
                    .alphas = patterns(object, "alpha_pattern", where)};
  const auto file = SafetensorsFile::open(folder / kTensorFile);
  std::set<std::string> used;
  std::vector<std::array<Pair, linears>> pairs(static_cast<std::size_t>(config.layers));
  Adapter out;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (std::size_t i = 0; i < linears; ++i) {
      const LinearSize size = linear_size(config, static_cast<Linear>(i));
      if (size.out == 0) continue;
      const Module module = module_of(config, layer, static_cast<Linear>(i));
      const std::string a_name = tensor_name(module.name, 'A'),
                        b_name = tensor_name(module.name, 'B');
      const StoredTensor *a = file.find(a_name), *b = file.find(b_name);
      if (a == nullptr && b == nullptr) continue;
      if (a == nullptr || b == nullptr) {
        throw core::Error(core::Code::corrupt,
                          fmt::format("{} is missing", a == nullptr ? a_name : b_name))
            .in(file.where());
      }
      used.insert(a_name), used.insert(b_name);
      Pair& pair = pairs[static_cast<std::size_t>(layer)][i];
      pair = read_pair(file, *a, *b, module, size);
      pair.scale = settings.scale_of(module.name);
      if (pair.rank > out.rank) {  // the widest pair's scale stays exact
        out.rank = pair.rank;
        out.scale = static_cast<float>(pair.scale);
      }
    }
  }
  for (const StoredTensor& tensor : file.tensors()) {
    if (used.contains(tensor.name)) continue;
    throw core::Error(core::Code::unsupported,
                      fmt::format("{} belongs to no matrix of this model that can be adapted",
                                  printable(tensor.name)))
        .in(file.where());
  }
  if (out.rank == 0)
    throw core::Error(core::Code::corrupt, "there is no pair in it").in(file.where());
  out.layers.resize(pairs.size());
  for (std::size_t layer = 0; layer < pairs.size(); ++layer) {
    for (std::size_t i = 0; i < linears; ++i) {
      Pair& pair = pairs[layer][i];
      if (pair.rank == 0) continue;
      normalise(pair, linear_size(config, static_cast<Linear>(i)), out.rank, out.scale);
      out.layers[layer][i] = std::move(pair.values);
    }
  }
  return out;
}

// Write a folder.
namespace {

// Make one pair of three.

/// Queries, keys and values have one A if theirs are equal, else theirs one below the other, and a block-diagonal B.
std::pair<LowRank, std::int64_t> fuse(const LayerAdapter& layer, std::int64_t rank,
                                      const LinearSize& size, bool shared) {
  constexpr std::size_t three = 3;
  const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(size.out),
             wide = shared ? r : three * r;
  LowRank out;
  for (std::size_t p = 0; p < (shared ? 1 : three); ++p) {
    const std::size_t end = (p + 1) * r * static_cast<std::size_t>(size.in);
    out.a.insert(out.a.end(), layer[p].a.begin(), layer[p].a.end());
    out.a.resize(end, 0.0f);
  }
  out.b.assign(three * n * wide, 0.0f);
  for (std::size_t p = 0; p < three; ++p) {
    if (layer[p].b.empty()) continue;
    for (std::size_t row = 0; row < n; ++row)
      std::copy_n(
          layer[p].b.begin() + static_cast<std::ptrdiff_t>(row * r), r,
          out.b.begin() + static_cast<std::ptrdiff_t>((p * n + row) * wide + (shared ? 0 : p * r)));
  }
  return {std::move(out), static_cast<std::int64_t>(wide)};
}

}  // namespace

void write_adapter(const std::filesystem::path& folder, const Config& config,
                   const Adapter& adapter) {
  check_adapter(config, adapter);
  std::vector<PlannedTensor> planned;
  std::vector<std::vector<float>> values;
  std::set<std::string> targets;
  std::int64_t fused_rank = 0;
  const auto add = [&](const std::string& module, LowRank pair, std::int64_t rank, std::int64_t in,
                       std::int64_t out) {
    planned.push_back({tensor_name(module, 'A'), kernels::DType::f32, {rank, in}});
    planned.push_back({tensor_name(module, 'B'), kernels::DType::f32, {out, rank}});
    values.push_back(std::move(pair.a));
    values.push_back(std::move(pair.b));
    targets.insert(module.substr(module.rfind('.') + 1));
  };
  const bool shared = std::ranges::all_of(adapter.layers, [](const LayerAdapter& layer) {
    return layer[0].a == layer[1].a && layer[1].a == layer[2].a;
  });
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (std::size_t i = 0; i < linears; ++i) {
      const auto which = static_cast<Linear>(i);
      const LinearSize size = linear_size(config, which);
      if (size.out == 0) continue;
      const Module module = module_of(config, layer, which);
      const LayerAdapter& all = adapter.layers[static_cast<std::size_t>(layer)];
      if (module.parts == 1) {
        if (!all[i].a.empty()) add(module.name, all[i], adapter.rank, size.in, size.out);
      } else if (module.part == 0 && !(all[0].a.empty() && all[1].a.empty() && all[2].a.empty())) {
        auto [pair, rank] = fuse(all, adapter.rank, size, shared);
        fused_rank = std::max(fused_rank, rank);
        add(module.name, std::move(pair), rank, size.in, size.out * module.parts);
      }
    }
  }
  std::filesystem::create_directories(folder);
  core::AtomicFile file(folder / kTensorFile);
  file.write(safetensors_header(planned, {{"format", "pt"}}));
  for (const std::vector<float>& v : values) file.write(std::as_bytes(std::span(v)));
  file.commit();
  const double alpha = double{adapter.scale} * static_cast<double>(adapter.rank);
  json::array target_names;
  for (const std::string& name : targets) target_names.emplace_back(name);
  json::object object{{"peft_type", "LORA"},
                      {"task_type", "CAUSAL_LM"},
                      {"r", adapter.rank},
                      {"lora_alpha", alpha},
                      {"target_modules", target_names},
                      {"bias", "none"},
                      {"lora_dropout", 0.0},
                      {"fan_in_fan_out", config.family == Family::gpt2},
                      {"use_rslora", false},
                      {"inference_mode", true}};
  if (fused_rank > adapter.rank) {
    const std::int64_t times = fused_rank / adapter.rank;
    object["rank_pattern"] = json::object{{"c_attn", fused_rank}};
    object["alpha_pattern"] = json::object{{"c_attn", alpha * static_cast<double>(times)}};
  }
  core::write_file_atomic(folder / kConfigFile, core::pretty_json(object));
}

}  // namespace rose::model
