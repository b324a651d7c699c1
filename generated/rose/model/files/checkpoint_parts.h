// The parts of opening a checkpoint.

#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "rose/model/files/gguf.h"
#include "rose/text/vocab.h"

namespace rose::model {

/// A file, or the folder that really holds config.json: hub cache folders are looked through.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& file_or_folder);

/// `org/name` for a path inside the hub cache, the file's or folder's name elsewhere.
std::string checkpoint_name(const std::filesystem::path& file_or_folder);

/// The tokenizer that the metadata describes; empty when it describes none.
std::optional<text::GgufVocab> vocab_in_gguf(const GgufFile& file);

/// The metadata that describes a tokenizer; one without tokens is reduced to its special ids.
GgufMetadata gguf_vocab(const text::GgufVocab& vocab);

}  // namespace rose::model
