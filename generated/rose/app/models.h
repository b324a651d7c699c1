// Find models on this machine.

#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rose/kernels/dtype.h"
#include "rose/model/files/checkpoint.h"
#include "rose/text/tokenizer.h"

namespace rose::app {

struct FoundModel {
  std::string name;            ///< what --model accepts
  std::filesystem::path path;  ///< the GGUF file or the folder
  std::string source;          ///< where it was found, in words
};

/// $ROSE_CACHE, or rosellm/ in $XDG_CACHE_HOME or ~/.cache.
std::filesystem::path cache_folder();

/// All models found: $ROSE_MODEL first, then our cache, then the Hugging Face hub cache.
std::vector<FoundModel> find_models();

/// The file or folder that `name` means; empty means the first found. Throws core::Error (not_found) that lists what there is.
std::filesystem::path find_model(const std::string& name);

/// The tokenizer that came with the checkpoint; its vocabulary must fit the model's. Throws core::Error otherwise.
text::Tokenizer load_tokenizer(const model::Checkpoint& checkpoint);

/// The type of weights with this name: "bf16", "q4_0". Throws core::Error that lists what can be written.
kernels::DType dtype_named(std::string_view name);

}  // namespace rose::app
