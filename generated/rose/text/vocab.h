// Hold a vocabulary, whatever file it came from.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/text/split.h"

namespace rose::text {

// Describe a merge and a token that is found before all splitting.
struct Merge {
  std::int32_t left, right;  ///< token ids that stand side by side
  std::int32_t rank;         ///< lower merges first
  std::int32_t result;       ///< the token that replaces them
};

struct AddedToken {
  std::string content;  ///< literal bytes
  std::int32_t id = -1;
  bool special =
      false;  ///< a control token: skipped in output, plain text unless special tokens are parsed
  bool single_word = false;  ///< only where no word character touches it
  bool lstrip = false;       ///< swallows white space on its left
  bool rstrip = false;       ///< and on its right
  bool normalized = false;   ///< searched for after normalisation rather than before
};

// Gather all that a tokenizer needs to know.
struct Vocab {
  std::vector<std::string> tokens;  ///< bytes of each id; empty where no token has the id
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::vector<SplitRule> split;  ///< applied one inside the other
  bool nfc = false;              ///< normalise before splitting
  bool ignore_merges = false;    ///< a word that is a token is that token, whatever the merges say
  std::optional<std::int32_t>
      unk;                ///< for a byte that no token covers; without it such a byte is dropped
  bool fuse_unk = false;  ///< one unk for a run of such bytes
  std::vector<std::int32_t> prefix, suffix;  ///< ids that the model expects around a text
  std::optional<std::int32_t> bos, eos, pad;
};

// Mirror the tokenizer keys of a GGUF file.
struct GgufVocab {
  std::string model;                ///< tokenizer.ggml.model; "gpt2" means byte-level BPE
  std::string pre;                  ///< tokenizer.ggml.pre: the split rule's name
  std::vector<std::string> tokens;  ///< in the byte spelling; control tokens literally
  std::vector<std::string> merges;  ///< "left right"
  std::vector<std::int32_t>
      types;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::optional<std::int32_t> bos, eos, unk, pad;
  std::optional<bool> add_bos, add_eos;
  bool add_space_prefix = false;
  std::string chat_template;
};

// Read and write vocabularies; errors name the file and the entry.

/// Hugging Face's `tokenizer.json`. What it asks for and we do not do is refused by name.
Vocab vocab_from_hf_json(std::string_view json, std::string_view where);

/// A `tokenizer.json`, or a folder that holds one; `tokenizer_config.json` beside it names bos, eos
/// and pad.
Vocab vocab_from_hf(const std::filesystem::path& file_or_folder);

Vocab vocab_from_gguf(const GgufVocab& gguf);

/// A tiktoken file: a base64 token and its rank a line. The file says neither split rule nor
/// special tokens.
Vocab vocab_from_tiktoken(std::string_view text, std::vector<SplitRule> split,
                          const std::vector<std::pair<std::string, std::int32_t>>& special,
                          std::string_view where);

std::string to_hf_json(const Vocab& vocab);
GgufVocab to_gguf(const Vocab& vocab);

/// Throws when an id, a merge or a byte makes no sense. The readers above call it.
void check(const Vocab& vocab, std::string_view where);

}  // namespace rose::text
