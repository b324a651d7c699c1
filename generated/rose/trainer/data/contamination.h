// Know the exam's phrases.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_set>

namespace rose::trainer {

class Contamination {
 public:
  static constexpr std::size_t run = 13, shortest = 6;  ///< words

  /// Adds one item of an evaluation set. Returns false when it is too short to be looked for.
  bool add(std::string_view item);
  /// Whether the text contains a run of words of any item. Safe from several threads.
  bool found_in(std::string_view text) const;
  bool empty() const { return phrases_.empty(); }

 private:
  std::map<std::size_t, std::unordered_set<std::uint64_t>> phrases_;  // by number of words
};

}  // namespace rose::trainer
