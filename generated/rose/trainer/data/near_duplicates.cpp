// Shingles, minima, bands.

#include "rose/trainer/data/near_duplicates.h"

#include <algorithm>
#include <string>

#include "rose/core/hash.h"
#include "rose/core/rng.h"

namespace rose::trainer {

std::vector<std::uint64_t> word_shingles(std::string_view text, std::size_t n) {
  std::vector<std::uint64_t> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(core::xxh3(word));
    word.clear();
  };
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                      static_cast<signed char>(c) < 0;
    if (kept) {
      word += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (c != '\'') {  // don't is one word
      end_word();
    }
  }
  end_word();
  if (words.empty()) return {};
  n = std::min(n, words.size());
  std::vector<std::uint64_t> shingles(words.size() - n + 1);
  for (std::size_t i = 0; i < shingles.size(); ++i)
    shingles[i] = core::xxh3(std::as_bytes(std::span(words).subspan(i, n)));
  return shingles;
}

namespace {

const MinHash& constants() {
  static const MinHash made = [] {
    MinHash values{};
    core::Rng rng(0x6e656172, 1);
    for (auto& value : values) value = rng.next();
    return values;
  }();
  return made;
}

}  // namespace

// Take the minima, group them.
MinHash min_hash(std::span<const std::uint64_t> shingles) {
  MinHash minima;
  minima.fill(~std::uint32_t{0});
  const MinHash& seeds = constants();
  for (const std::uint64_t shingle : shingles) {
    const auto low = static_cast<std::uint32_t>(shingle);
    for (std::size_t i = 0; i < near_hashes; ++i) {
      std::uint32_t h = low ^ seeds[i];  // the finaliser of MurmurHash3
      h = (h ^ h >> 16) * 0x85ebca6bU;
      h = (h ^ h >> 13) * 0xc2b2ae35U;
      minima[i] = std::min(minima[i], h ^ h >> 16);
    }
  }
  return minima;
}

BandKeys band_keys(const MinHash& minima) {
  BandKeys keys{};
  for (std::size_t b = 0; b < near_bands; ++b)
    keys[b] = core::xxh3(std::as_bytes(std::span(minima).subspan(b * near_rows, near_rows)));
  return keys;
}

void NearDuplicates::insert(const BandKeys& keys) {
  for (std::size_t b = 0; b < near_bands; ++b) bands_[b].insert(keys[b]);
}

bool NearDuplicates::seen(const BandKeys& keys) {
  for (std::size_t b = 0; b < near_bands; ++b)
    if (bands_[b].contains(keys[b])) return true;
  insert(keys);
  return false;
}

}  // namespace rose::trainer
