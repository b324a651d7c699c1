// Sketch documents, find those seen nearly before.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace rose::trainer {

constexpr std::size_t near_bands = 16, near_rows = 8, near_hashes = near_bands * near_rows;
using MinHash = std::array<std::uint32_t, near_hashes>;
using BandKeys = std::array<std::uint64_t, near_bands>;

/// Hashes of all runs of `n` words, letters in lower case, everything else ignored. A text of fewer
/// words has one, of all of them; a text without words none.
std::vector<std::uint64_t> word_shingles(std::string_view text, std::size_t n);

/// For each of the hash functions the smallest value; all ones for no shingles.
MinHash min_hash(std::span<const std::uint64_t> shingles);
BandKeys band_keys(const MinHash& minima);

/// The keys of all documents that were kept.
class NearDuplicates {
 public:
  /// Whether any band was seen before. If none was, the document counts as kept.
  bool seen(const BandKeys& keys);
  void insert(const BandKeys& keys);

 private:
  std::array<std::unordered_set<std::uint64_t>, near_bands> bands_;
};

}  // namespace rose::trainer
