// Open a model wherever it lies.

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rose/model/files/config.h"
#include "rose/model/files/tensor_source.h"
#include "rose/text/vocab.h"

namespace rose::model {

// Keep configuration, tensors and the way to the tokenizer together.
enum class Format : std::uint8_t { gguf, safetensors };

struct Checkpoint {
  std::filesystem::path path;  ///< the GGUF file, or the folder that holds config.json
  Format format = Format::gguf;
  std::string name;  ///< for people: general.name, or the folder's or repository's name
  Config config;
  std::vector<TensorInfo> tensors;  ///< in canonical order: embedding, layers ascending, norm, head

  std::optional<std::filesystem::path> tokenizer_json;  ///< Hugging Face folders
  std::optional<text::GgufVocab> vocab;                 ///< GGUF files
  std::string chat_template;                            ///< Jinja source; empty: none
  std::string bos_token;                                ///< its text, for the template
  std::string eos_token;
  std::string quantization{};  ///< how a library has packed the matrices; empty: not

  const TensorInfo* find(std::string_view tensor) const;  ///< null when absent
  const TensorInfo& at(std::string_view tensor) const;    ///< throws core::Error
  std::int64_t parameters() const;                        ///< a tied head counts once
};

// Find it, describe it, open it.

/// Opens a GGUF file, a Hugging Face folder, or a hub cache folder (`models--org--name`, whose
/// snapshot is looked up). Every tensor that the configuration implies is present and has its
/// shape, and there is no other.
Checkpoint open_checkpoint(const std::filesystem::path& file_or_folder);

/// The same without the tensors: cheap enough for a listing.
Checkpoint describe_checkpoint(const std::filesystem::path& file_or_folder);

/// The local hub cache: $HF_HUB_CACHE, or $HF_HOME/hub, or ~/.cache/huggingface/hub.
std::filesystem::path hub_cache_folder();

/// Where `org/name` lies in the local hub cache, if it does.
std::optional<std::filesystem::path> find_in_hub_cache(std::string_view repository);

/// Every repository of the local hub cache that holds a config.json: `org/name` and its folder.
std::vector<std::pair<std::string, std::filesystem::path>> list_hub_cache();

}  // namespace rose::model
