// Turn text into token ids and back.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/text/vocab.h"

namespace rose::text {

/// Byte-level BPE: immutable, cheap to copy, safe to use from several threads.
class Tokenizer {
 public:
  explicit Tokenizer(Vocab vocab, std::string_view where = "vocabulary");

  static Tokenizer load(const std::filesystem::path& file_or_folder);  ///< `tokenizer.json`
  static Tokenizer from_hf_json(std::string_view json, std::string_view where = "tokenizer.json");
  static Tokenizer from_gguf(const GgufVocab& gguf);

  /// The ids of a text, without `prefix()` and `suffix()`. A special token's text becomes that
  /// token only when `parse_special`; otherwise it is text like any other.
  std::vector<std::int32_t> encode(std::string_view text, bool parse_special) const;
  void encode(std::string_view text, bool parse_special,
              std::vector<std::int32_t>& out) const;  ///< appends

  /// The text of a sequence: its bytes, each part of them that is not UTF-8 replaced by U+FFFD.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = false) const;
  /// The bytes of one token. Throws out_of_range when there is no such id.
  std::string_view bytes(std::int32_t id) const;

  std::int32_t vocab_size() const;  ///< one more than the highest id
  bool is_special(std::int32_t id) const;
  /// The token with these bytes, added tokens first.
  std::optional<std::int32_t> find(std::string_view bytes) const;
  std::optional<std::int32_t> bos() const, eos() const, pad() const;
  std::span<const std::int32_t> prefix() const,
      suffix() const;  ///< what the model expects around a text
  const Vocab& vocab() const;
  std::uint64_t hash() const;  ///< of everything that ids depend on

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace rose::text
