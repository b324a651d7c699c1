// Apply merges to a word.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "rose/text/vocab.h"

namespace rose::text {

// Find what a pair of tokens merges to, in a flat hash table.
class MergeTable {
 public:
  struct Entry {
    std::uint64_t pair = ~std::uint64_t{0};  ///< left << 32 | right; all ones when the slot is free
    std::int32_t rank = 0;
    std::int32_t result = 0;
  };

  explicit MergeTable(const std::vector<Merge>& merges);

  /// The merge of two adjacent tokens, or null.
  const Entry* find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t pair = key(left, right);
    for (std::size_t i = slot(pair);; i = (i + 1) & mask_) {
      if (entries_[i].pair == pair) return &entries_[i];
      if (entries_[i].pair == ~std::uint64_t{0}) return nullptr;
    }
  }

 private:
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
           static_cast<std::uint32_t>(right);
  }
  std::size_t slot(std::uint64_t pair) const {
    const std::uint64_t h = (pair ^ pair >> 29) * 0x9E3779B97F4A7C15u;
    return static_cast<std::size_t>(h >> 32) & mask_;
  }
  std::vector<Entry> entries_;
  std::size_t mask_ = 0;
};

// Find a token by its bytes.
class TokenIndex {
 public:
  /// Indexes the tokens that `skip` does not name; of equal ones, the first.
  TokenIndex(const std::vector<std::string>& tokens, const std::vector<bool>& skip);
  std::int32_t find(std::string_view bytes) const;  ///< -1: no such token

 private:
  const std::vector<std::string>* tokens_;
  std::vector<std::int32_t> slots_;
};

// Turn the bytes of a word into token ids.
class Bpe {
 public:
  /// Keeps a reference to `vocab`.
  explicit Bpe(const Vocab& vocab);

  /// Buffers that a caller reuses, so that no word costs an allocation.
  struct Scratch {
    std::vector<std::int32_t> ids, previous, next, rank;
    std::vector<std::uint64_t> heap;
  };

  /// The ids of one word, in `scratch`. Quick for short words, O(n log n) for any length.
  std::span<const std::int32_t> encode_word(std::string_view word, Scratch& scratch) const;
  std::int32_t find(std::string_view bytes) const { return index_.find(bytes); }

 private:
  void merge_short(std::vector<std::int32_t>& ids) const;
  void merge_long(Scratch& scratch) const;

  const Vocab* vocab_;
  MergeTable merges_;
  TokenIndex index_;
  std::array<std::int32_t, 256> id_of_byte_{};  // -1: no token covers the byte
};

}  // namespace rose::text
