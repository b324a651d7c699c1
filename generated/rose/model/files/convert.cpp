// Carry a model from one format into another.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/kernels/quant.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/checkpoint_parts.h"
#include "rose/model/files/convert.h"
#include "rose/model/files/gguf.h"
#include "rose/model/files/safetensors.h"
#include "rose/model/files/write_rows.h"

namespace rose::model {
namespace {

using core::Code;
using core::Error;
using kernels::DType;
namespace fs = std::filesystem;
namespace json = core::json;

// Choose every tensor's type in the target.
bool is_small(DType dtype) {  // below eight bits
  return dtype == DType::q4_0 || dtype == DType::q4_1 || dtype == DType::q5_0 ||
         dtype == DType::q5_1;
}

void choose_gguf_type(Recipe& recipe, const ConvertOptions& options, ConvertResult& result) {
  PlannedTensor& target = recipe.target;
  const std::string& canonical = recipe.parts.front()->name;
  if (target.shape.size() < 2 || canonical == "pos_embed.weight") {
    target.dtype = DType::f32;
    return;
  }
  if (options.dtype) {
    const bool table = canonical == "embed.weight" || canonical == "head.weight";
    target.dtype = table && is_small(*options.dtype) ? DType::q8_0 : *options.dtype;
  }
  if (target.shape.back() % kernels::info(target.dtype).block_elements != 0) {
    target.dtype = DType::f32;
    ++result.kept_f32;
  }
}

void choose_hf_type(Recipe& recipe, const ConvertOptions& options) {
  DType& dtype = recipe.target.dtype;
  if (options.dtype) {
    dtype = *options.dtype;
  } else if (!kernels::is_plain(dtype)) {
    dtype = DType::f32;
  }
}

void require_writable(const ConvertOptions& options, bool gguf) {
  if (!options.dtype) return;
  const DType dtype = *options.dtype;
  if (gguf ? kernels::can_quantize(dtype)
           : kernels::is_plain(dtype) && kernels::can_quantize(dtype)) {
    return;
  }
  throw Error(Code::unsupported,
              fmt::format("writing {} {} is not supported", kernels::info(dtype).name,
                          gguf ? "weights" : "weights into a Hugging Face folder"))
      .in("target type")
      .hint(gguf ? "choose f32, f16, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0"
                 : "choose f32, f16 or bf16, or write a GGUF file");
}

// Write all weights after their header.
std::uint64_t total_bytes(const std::vector<Recipe>& recipes) {
  std::uint64_t total = 0;
  for (const Recipe& recipe : recipes) total += byte_count(recipe.target);
  return total;
}

void require_room(const fs::path& target, std::uint64_t bytes) {
  std::error_code failed;
  const fs::path folder = fs::absolute(target).parent_path();
  const fs::space_info space = fs::space(folder, failed);
  if (failed || space.available >= bytes) return;
  throw Error(Code::resource_exhausted,
              fmt::format("the result takes {} MB, the disk has {} MB left", bytes / 1'000'000 + 1,
                          space.available / 1'000'000))
      .in(folder.string())
      .hint("free some space, or choose a smaller type");
}

void write_weights(core::AtomicFile& file, const std::vector<Recipe>& recipes, bool pad,
                   const ConvertOptions& options, ConvertResult& result) {
  constexpr std::uint64_t report_every = 4 << 20;
  const std::uint64_t total = total_bytes(recipes);
  std::uint64_t reported = 0;
  for (const Recipe& recipe : recipes) {
    const auto report = [&] {
      reported = result.bytes;
      if (options.progress) options.progress(result.bytes, total, recipe.target.name);
    };
    report();
    const std::uint64_t begin = result.bytes;
    write_rows(recipe, [&](std::span<const std::byte> bytes) {
      file.write(bytes);
      result.bytes += bytes.size();
      if (result.bytes - reported >= report_every) report();
    });
    const std::uint64_t size = result.bytes - begin;
    if (size != byte_count(recipe.target)) {
      throw Error(Code::internal, "a tensor was written with the wrong size")
          .in(recipe.target.name);
    }
    if (pad) file.write(std::string(gguf_padded(size) - size, '\0'));
    ++result.tensors;
  }
  if (options.progress) options.progress(result.bytes, total, "");
}

// Say in metadata what the model is.
std::uint32_t file_type(const std::vector<Recipe>& recipes) {  // what most matrices are stored as
  constexpr std::array<std::pair<DType, std::uint32_t>, 11> codes = {{{DType::f32, 0},
                                                                      {DType::f16, 1},
                                                                      {DType::q4_0, 2},
                                                                      {DType::q4_1, 3},
                                                                      {DType::q8_0, 7},
                                                                      {DType::q5_0, 8},
                                                                      {DType::q5_1, 9},
                                                                      {DType::q4_k, 15},
                                                                      {DType::q5_k, 17},
                                                                      {DType::q6_k, 18},
                                                                      {DType::bf16, 32}}};
  std::array<std::uint64_t, codes.size()> bytes{};
  for (const Recipe& recipe : recipes) {
    if (recipe.target.shape.size() < 2 || recipe.parts.front()->name == "embed.weight") continue;
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (codes[i].first == recipe.target.dtype) bytes[i] += byte_count(recipe.target);
    }
  }
  return codes[static_cast<std::size_t>(std::max_element(bytes.begin(), bytes.end()) -
                                        bytes.begin())]
      .second;
}

text::GgufVocab read_vocab(const Checkpoint& source) {
  text::GgufVocab vocab;
  if (source.vocab) {
    vocab = *source.vocab;
  } else if (source.tokenizer_json) {
    vocab = text::to_gguf(text::vocab_from_hf(source.path));
  } else {
    throw Error(Code::not_found, "there is no tokenizer.json in the folder")
        .in(source.path.string())
        .hint("fetch the model's tokenizer, or convert the weights alone");
  }
  const auto rows = static_cast<std::size_t>(source.config.vocab_size);
  if (vocab.tokens.size() > rows) {
    throw Error(Code::corrupt,
                fmt::format("the tokenizer has {} tokens, the embedding table {} rows",
                            vocab.tokens.size(), rows))
        .in(source.path.string())
        .hint("tokenizer and weights belong to different models");
  }
  constexpr std::int32_t unused = 5;
  if (!vocab.types.empty()) vocab.types.resize(rows, unused);
  for (std::size_t i = vocab.tokens.size(); i < rows; ++i)
    vocab.tokens.push_back(fmt::format("[PAD{}]", i));
  vocab.chat_template = source.chat_template;
  return vocab;
}

GgufMetadata describe(const Checkpoint& source, const std::vector<Recipe>& recipes,
                      const ConvertOptions& options) {
  GgufMetadata out = gguf_config(source.config);
  out.emplace_back("general.type", "model");
  out.emplace_back("general.name", source.name);
  const std::uint32_t type = file_type(recipes);
  out.emplace_back("general.file_type", type);
  if (type > 1 && type != 32) out.emplace_back("general.quantization_version", std::uint32_t{2});
  text::GgufVocab vocab;
  if (options.tokenizer) vocab = read_vocab(source);
  const std::vector<std::int32_t>& eos = source.config.eos_ids;
  if (!eos.empty()) vocab.eos = eos[0];
  if (!vocab.bos) vocab.bos = source.config.bos_id;
  for (auto& entry : gguf_vocab(vocab)) out.push_back(std::move(entry));
  if (eos.size() > 1) {
    out.emplace_back("tokenizer.ggml.eot_token_id", static_cast<std::uint32_t>(eos[1]));
  }
  if (eos.size() > 2) {
    out.emplace_back("tokenizer.ggml.eom_token_id", static_cast<std::uint32_t>(eos[2]));
  }
  return out;
}

// Write a GGUF file.
ConvertResult to_gguf(const Checkpoint& source, const fs::path& to, const ConvertOptions& options) {
  ConvertResult result;
  std::vector<Recipe> recipes = plan(source.config, source.tensors, place_in_gguf);
  for (Recipe& recipe : recipes) choose_gguf_type(recipe, options, result);
  const std::vector<float> divisors = llama3_frequency_divisors(source.config);
  TensorInfo frequencies{.name = "rope_freqs.weight",
                         .dtype = DType::f32,
                         .shape = {static_cast<std::int64_t>(divisors.size())},
                         .data = reinterpret_cast<const std::byte*>(divisors.data()),
                         .bytes = divisors.size() * sizeof(float),
                         .owner = nullptr};
  if (source.config.rope_scaling.kind == RopeScaling::Kind::llama3) {
    recipes.push_back({{frequencies.name, DType::f32, frequencies.shape}, {}, {&frequencies}});
  }
  std::vector<PlannedTensor> planned;
  planned.reserve(recipes.size());
  for (const Recipe& recipe : recipes) planned.push_back(recipe.target);
  const std::string header = gguf_header(describe(source, recipes, options), planned);
  require_room(to, header.size() + total_bytes(recipes));
  core::AtomicFile file(to);
  file.write(header);
  write_weights(file, recipes, true, options, result);
  file.commit(core::Durability::power);
  return result;
}

// Build a folder out of sight.
class HiddenFolder {
 public:
  explicit HiddenFolder(const fs::path& target) : target_(fs::absolute(target).lexically_normal()) {
    if (target_.filename().empty()) target_ = target_.parent_path();
    path_ = target_.parent_path() /
            fmt::format(".{}.partial-{}", target_.filename().string(), ::getpid());
    std::error_code failed;
    fs::remove_all(path_, failed);
    if (!fs::create_directory(path_, failed)) {
      throw Error(Code::io, fmt::format("cannot create the folder: {}", failed.message()))
          .in(path_.string());
    }
  }
  HiddenFolder(const HiddenFolder&) = delete;
  HiddenFolder& operator=(const HiddenFolder&) = delete;
  ~HiddenFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  const fs::path& path() const { return path_; }
  void commit() {
    std::error_code failed;
    fs::rename(path_, target_, failed);
    if (failed) {
      throw Error(Code::io,
                  fmt::format("cannot give the finished folder its name: {}", failed.message()))
          .in(target_.string());
    }
    path_.clear();
  }

 private:
  fs::path target_, path_;
};

// Write or copy the files beside the weights.
void write_json(const fs::path& path, const json::object& object) {
  core::write_file_atomic(path, core::pretty_json(object) + "\n");
}

std::string dtype_name(const std::vector<Recipe>& recipes) {  // as PyTorch spells it
  const DType dtype = recipes.front().target.dtype;
  return dtype == DType::f16 ? "float16" : dtype == DType::bf16 ? "bfloat16" : "float32";
}

void copy_hf_files(const Checkpoint& source, const fs::path& folder, const std::string& dtype) {
  const fs::path config = source.path / "config.json";
  json::value value = core::parse_json(core::read_file(config), config.string());
  value.as_object().erase("torch_dtype");
  value.as_object()["dtype"] = dtype;
  write_json(folder / "config.json", value.as_object());
  for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json", "vocab.json",
                           "merges.txt", "chat_template.jinja"}) {
    if (fs::exists(source.path / name)) {
      core::write_file_atomic(folder / name, core::read_file(source.path / name));
    }
  }
}

void write_hf_files(const Checkpoint& source, const fs::path& folder, const std::string& dtype,
                    const ConvertOptions& options) {
  json::object config = to_hf_config(source.config);
  config["dtype"] = dtype;
  write_json(folder / "config.json", config);
  json::object generation{{"bos_token_id", config["bos_token_id"]},
                          {"eos_token_id", config["eos_token_id"]}};
  write_json(folder / "generation_config.json", generation);
  if (!options.tokenizer) return;
  if (!source.vocab) {
    throw Error(Code::not_found, "the file describes no tokenizer").in(source.path.string());
  }
  core::write_file_atomic(folder / "tokenizer.json",
                          text::to_hf_json(text::vocab_from_gguf(*source.vocab)));
  json::object tokenizer{{"tokenizer_class", "PreTrainedTokenizerFast"},
                         {"clean_up_tokenization_spaces", false},
                         {"model_max_length", source.config.max_positions}};
  const auto special = [&](const char* key, std::optional<std::int32_t> id) {
    if (id) tokenizer[key] = source.vocab->tokens[static_cast<std::size_t>(*id)];
  };
  special("bos_token", source.vocab->bos);
  special("eos_token", source.vocab->eos);
  special("unk_token", source.vocab->unk);
  special("pad_token", source.vocab->pad);
  if (!source.chat_template.empty()) tokenizer["chat_template"] = source.chat_template;
  write_json(folder / "tokenizer_config.json", tokenizer);
}

// Write a Hugging Face folder.
ConvertResult to_hf(const Checkpoint& source, const fs::path& to, const ConvertOptions& options) {
  ConvertResult result;
  std::vector<Recipe> recipes = plan(source.config, source.tensors, place_in_hf);
  for (Recipe& recipe : recipes) choose_hf_type(recipe, options);
  std::stable_sort(recipes.begin(), recipes.end(), [](const Recipe& a, const Recipe& b) {
    return kernels::info(a.target.dtype).block_bytes > kernels::info(b.target.dtype).block_bytes;
  });  // wide elements first, so that all are aligned
  std::vector<PlannedTensor> planned;
  planned.reserve(recipes.size());
  for (const Recipe& recipe : recipes) planned.push_back(recipe.target);
  const std::string header = safetensors_header(planned, {{"format", "pt"}});
  require_room(to, header.size() + total_bytes(recipes));
  HiddenFolder folder(to);
  if (source.format == Format::safetensors) {
    copy_hf_files(source, folder.path(), dtype_name(recipes));
  } else {
    write_hf_files(source, folder.path(), dtype_name(recipes), options);
  }
  {
    core::AtomicFile file(folder.path() / "model.safetensors");
    file.write(header);
    write_weights(file, recipes, false, options, result);
    file.commit(core::Durability::power);
  }
  if (options.finish) options.finish(folder.path());
  folder.commit();
  return result;
}

}  // namespace

// Check the request, then convert.
namespace {

bool is_gguf(const fs::path& to) {
  return to.extension() == ".gguf";
}

void check_request(const fs::path& to, const ConvertOptions& options) {
  const bool gguf = is_gguf(to);
  require_writable(options, gguf);
  if (fs::exists(to) && !(gguf && options.overwrite)) {
    throw Error(Code::invalid_argument, "the target exists already")
        .in(to.string())
        .hint("choose another name, or remove it first");
  }
  const fs::path folder = fs::absolute(to).parent_path();
  if (!fs::is_directory(folder)) {
    throw Error(Code::not_found, "there is no such folder to write into").in(folder.string());
  }
}

}  // namespace

ConvertResult convert(const Checkpoint& source, const fs::path& to, const ConvertOptions& options) {
  check_request(to, options);
  return is_gguf(to) ? to_gguf(source, to, options) : to_hf(source, to, options);
}

ConvertResult convert(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  check_request(to, options);
  return convert(open_checkpoint(from), to, options);
}

}  // namespace rose::model
