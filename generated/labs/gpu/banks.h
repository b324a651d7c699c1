// Count how long an access to shared memory takes.

#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <set>

namespace rose::labs {

/// Cycles that `lanes` threads need to read or write `words` consecutive words each: the most different words that one of the
/// 32 banks is asked for.
inline int bank_cycles(const std::function<int(int)>& word_of_lane, int lanes, int words) {
  std::map<int, std::set<int>> words_of_bank;
  for (int lane = 0; lane < lanes; ++lane) {
    for (int i = 0; i < words; ++i) {
      const int word = word_of_lane(lane) + i;
      words_of_bank[word % 32].insert(word);
    }
  }
  std::size_t most = 0;
  for (const auto& [bank, of_bank] : words_of_bank) most = std::max(most, of_bank.size());
  return static_cast<int>(most);
}

}  // namespace rose::labs
