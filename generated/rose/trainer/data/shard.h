// Map a file of tokens.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace rose::trainer {

// Say what is known of a shard, and what is expected.

/// What a header says, or what is assumed where there is none.
struct ShardInfo {
  std::int64_t tokens = 0, documents = 0;
  std::int64_t text_bytes = 0;              ///< 0 when unknown
  std::int32_t vocab_size = 0;              ///< 0 when unknown
  std::optional<std::int32_t> separator{};  ///< stands between documents
  std::uint64_t tokenizer = 0;              ///< text::Tokenizer::hash(); 0 when unknown
  int token_bytes = 2;                      ///< 2 or 4
};

struct ShardExpectation {
  std::int32_t vocab_size = 0;              ///< the model's; 0: any
  std::optional<std::int32_t> separator{};  ///< of a file that does not say
};

/// A document's tokens, separators excluded.
struct DocumentRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

// Read a shard.
class Shard {
 public:
  /// Maps and validates. Throws core::Error: not_found, corrupt (sizes, index), out_of_range (made
  /// for a larger vocabulary).
  static Shard open(const std::filesystem::path& path, const ShardExpectation& expected = {});

  const ShardInfo& info() const;
  const std::filesystem::path& path() const;
  /// Of non-empty documents; without separators, one.
  std::int64_t documents() const;
  DocumentRange document(std::int64_t d) const;
  /// The hash of a document's text, where an index holds it; else of its tokens.
  std::uint64_t document_hash(std::int64_t d) const;

  /// Copies tokens [begin, begin + out.size()). Throws core::Error (out_of_range) when one is
  /// beyond the vocabulary.
  void copy(std::int64_t begin, std::span<std::int32_t> out) const;

  /// Reads everything once and compares both checksums. Throws core::Error (corrupt).
  void verify() const;
  /// Changes whenever the tokens or the documents do; cheap where the header has checksums.
  std::uint64_t fingerprint() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

// Write a shard.
class ShardWriter {
 public:
  /// `info` gives vocab_size, separator (required) and tokenizer; the rest is counted.
  ShardWriter(std::filesystem::path path, const ShardInfo& info);

  /// A document without separators; empty ones are ignored. Throws core::Error (out_of_range).
  void append(std::span<const std::int32_t> tokens, std::uint64_t hash, std::int64_t text_bytes);
  std::int64_t tokens() const { return info_.tokens; }
  std::int64_t documents() const { return info_.documents; }
  /// Writes both files, or neither under its final name. Nothing may follow.
  void finish();

 private:
  void push(std::int32_t token);
  std::filesystem::path path_;
  ShardInfo info_;
  std::vector<std::byte> bytes_;
  std::vector<std::uint64_t> index_;  // end, hash
};

/// A file as it is, or the files `NAME*.bin` of a folder in the order of their names.
/// Throws core::Error (not_found) when there is none.
std::vector<std::filesystem::path> shard_files(const std::filesystem::path& file_or_folder,
                                               std::string_view name = "train");

}  // namespace rose::trainer
