// Draft what followed the last tokens before.

#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "rose/infer/speculation.h"

namespace rose::infer {

class LookupDrafter : public Drafter {
 public:
  /// A common end of fewer tokens than `least` is no match; longer than `longest` is not looked at.
  explicit LookupDrafter(int least = 2, int longest = 16) : least_(least), longest_(longest) {}

  void draft(std::span<const std::int32_t> tokens, int most,
             std::vector<std::int32_t>& out) override;

 private:
  void index(std::span<const std::int32_t> tokens);
  std::uint64_t key(std::span<const std::int32_t> tokens, std::size_t end) const;

  int least_, longest_;
  std::unordered_map<std::uint64_t, std::int32_t> latest_;  // key -> end of its latest place
  std::vector<std::int32_t> earlier_;  // [ends] the place before with the same key, -1: none
  std::vector<std::int32_t> known_;    // the tokens that are indexed
};

}  // namespace rose::infer
