// Open a model wherever it lies.

#include <fmt/format.h>

#include <algorithm>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/model/files/assemble.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/files/checkpoint_parts.h"
#include "rose/model/files/gguf.h"
#include "rose/model/files/packed_layouts.h"
#include "rose/model/files/safetensors.h"

namespace rose::model {

using core::Code;
using core::Error;
namespace fs = std::filesystem;
namespace json = core::json;

// Find a tensor by its canonical name.
const TensorInfo* Checkpoint::find(std::string_view tensor) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TensorInfo& t) { return t.name == tensor; });
  return found == tensors.end() ? nullptr : &*found;
}

const TensorInfo& Checkpoint::at(std::string_view tensor) const {
  if (const TensorInfo* found = find(tensor)) return *found;
  throw Error(Code::not_found, fmt::format("there is no tensor '{}'", tensor)).in(path.string());
}

std::int64_t Checkpoint::parameters() const {
  std::int64_t count = 0;
  for (const TensorInfo& tensor : tensors) count += tensor.elements();
  return count;
}

// Open a GGUF file.
namespace {

std::string token_text(const std::optional<text::GgufVocab>& vocab,
                       std::optional<std::int32_t> text::GgufVocab::*which) {
  if (!vocab || !((*vocab).*which)) return "";
  const std::int32_t id = *((*vocab).*which);
  if (id < 0 || static_cast<std::size_t>(id) >= vocab->tokens.size()) return "";
  return vocab->tokens[static_cast<std::size_t>(id)];
}

Checkpoint open_gguf(const fs::path& path, bool with_tensors) {
  const GgufFile file = GgufFile::open(path);
  Checkpoint out;
  out.path = path;
  out.format = Format::gguf;
  out.name = file.text("general.name").value_or(checkpoint_name(path));
  out.config = config_from_gguf(file);
  out.vocab = vocab_in_gguf(file);
  if (out.vocab) {
    out.chat_template = out.vocab->chat_template;
    out.bos_token = token_text(out.vocab, &text::GgufVocab::bos);
    out.eos_token = token_text(out.vocab, &text::GgufVocab::eos);
    if (out.vocab->tokens.size() > static_cast<std::size_t>(out.config.vocab_size)) {
      throw Error(Code::corrupt, fmt::format("the tokenizer has {} tokens, the embedding table {} "
                                             "rows",
                                             out.vocab->tokens.size(), out.config.vocab_size))
          .in(path.string());
    }
  }
  if (!with_tensors) return out;
  StoredByName stored;
  for (const StoredTensor& tensor : file.tensors()) {
    stored.emplace(tensor.name, Stored{tensor, file.owner(), file.where()});
  }
  out.tensors = assemble(out.config, gguf_naming(out.config), stored, path.string());
  return out;
}

}  // namespace

// Open a Hugging Face folder.
namespace {

std::optional<json::object> read_object(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  constexpr std::size_t largest = std::size_t{64} << 20;
  const json::value value = core::parse_json(core::read_file(path, largest), path.string());
  return core::as_object(value, path.string());
}

StoredByName read_safetensors(const fs::path& folder) {
  StoredByName stored;
  const auto add = [&](const fs::path& path, const std::map<std::string, std::string>* wanted) {
    const SafetensorsFile file = SafetensorsFile::open(path);
    for (const StoredTensor& tensor : file.tensors()) {
      if (wanted != nullptr) {
        const auto at = wanted->find(tensor.name);
        if (at == wanted->end() || at->second != path.filename().string()) continue;
      }
      stored.emplace(tensor.name, Stored{tensor, file.owner(), file.where()});
    }
  };
  const fs::path single = folder / "model.safetensors";
  const fs::path sharded = folder / "model.safetensors.index.json";
  if (fs::exists(single)) {
    add(single, nullptr);
  } else if (fs::exists(sharded)) {
    const auto index = parse_safetensors_index(core::read_file(sharded), sharded.string());
    for (const std::string& file : index.files) add(folder / file, &index.file_of_tensor);
    for (const auto& [tensor, file] : index.file_of_tensor) {
      if (stored.count(tensor) != 0) continue;
      throw Error(Code::corrupt, fmt::format("tensor {} is not in {}, where the index puts it",
                                             printable(tensor), printable(file)))
          .in(sharded.string());
    }
  } else if (fs::exists(folder / "pytorch_model.bin") ||
             fs::exists(folder / "pytorch_model.bin.index.json")) {
    throw Error(Code::unsupported,
                "the weights are pickled (pytorch_model.bin), and loading a "
                "pickle runs the code in it")
        .in(folder.string())
        .hint("fetch the model's safetensors files instead");
  } else {
    throw Error(Code::not_found, "there are no weights (model.safetensors) in the folder")
        .in(folder.string());
  }
  return stored;
}

/// A special token is spelled as a string or as an object with its content.
std::string special_token(const json::object& config, std::string_view key) {
  const json::value* value = core::find(config, key);
  if (value != nullptr && value->is_object()) value = core::find(value->get_object(), "content");
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

/// The template is a string, or a list of named ones of which "default" is ours.
std::string chat_template(const json::object& config) {
  const json::value* value = core::find(config, "chat_template");
  if (value == nullptr) return "";
  if (value->is_string()) return std::string(value->get_string());
  if (!value->is_array()) return "";
  for (const json::value& item : value->get_array()) {
    if (!item.is_object()) continue;
    const json::object& named = item.get_object();
    if (special_token(named, "name") == "default") return special_token(named, "template");
  }
  return "";
}

Checkpoint open_hf(const fs::path& folder, bool with_tensors) {
  Checkpoint out;
  out.path = folder;
  out.format = Format::safetensors;
  out.name = checkpoint_name(folder);
  const fs::path config = folder / "config.json";
  const auto object = read_object(config);
  if (!object) {
    throw Error(Code::not_found, "the folder holds neither config.json nor a single GGUF file")
        .in(folder.string())
        .hint("name a GGUF file, or a folder in Hugging Face's layout");
  }
  out.config = parse_hf_config(*object, config.string());
  const fs::path generation = folder / "generation_config.json";
  if (const auto settings = read_object(generation)) {
    const auto eos = hf_token_ids(*settings, "eos_token_id", generation.string());
    if (!eos.empty()) out.config.eos_ids = eos;
  }
  if (fs::exists(folder / "tokenizer.json")) out.tokenizer_json = folder / "tokenizer.json";
  if (const auto tokenizer = read_object(folder / "tokenizer_config.json")) {
    out.bos_token = special_token(*tokenizer, "bos_token");
    out.eos_token = special_token(*tokenizer, "eos_token");
    out.chat_template = chat_template(*tokenizer);
  }
  if (fs::exists(folder / "chat_template.jinja")) {
    out.chat_template = core::read_file(folder / "chat_template.jinja", std::size_t{16} << 20);
  }
  PackedReader packed;
  if (core::find(*object, "quantization_config") != nullptr) {
    const Packing packing = read_packing(
        core::get_object(*object, "quantization_config", config.string()), config.string());
    out.quantization = packing.name;
    packed = packed_reader(packing);
  }
  if (with_tensors) {
    out.tensors = assemble(out.config, hf_naming(out.config), read_safetensors(folder),
                           folder.string(), packed);
  }
  return out;
}

}  // namespace

// Decide what a path is, and open it.
namespace {

Checkpoint open(const fs::path& given, bool with_tensors) {
  const fs::path path = resolve_checkpoint(given);
  std::error_code failed;
  if (fs::is_directory(path, failed)) return open_hf(path, with_tensors);
  return open_gguf(path, with_tensors);
}

}  // namespace

Checkpoint open_checkpoint(const fs::path& file_or_folder) {
  return open(file_or_folder, true);
}
Checkpoint describe_checkpoint(const fs::path& file_or_folder) {
  return open(file_or_folder, false);
}

}  // namespace rose::model
