// Look for phrases of each length.

#include "rose/trainer/data/contamination.h"

#include <algorithm>

#include "rose/trainer/data/near_duplicates.h"

namespace rose::trainer {

bool Contamination::add(std::string_view item) {
  const std::size_t words = word_shingles(item, 1).size();
  if (words < shortest) return false;
  const std::size_t length = std::min(words, run);
  const auto shingles = word_shingles(item, length);
  phrases_[length].insert(shingles.begin(), shingles.end());
  return true;
}

bool Contamination::found_in(std::string_view text) const {
  return std::ranges::any_of(phrases_, [&](const auto& entry) {
    const auto shingles = word_shingles(text, entry.first);
    return std::ranges::any_of(
        shingles, [&](std::uint64_t shingle) { return entry.second.contains(shingle); });
  });
}

}  // namespace rose::trainer
