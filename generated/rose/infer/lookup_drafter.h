// Draft what followed the last tokens before.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rose/infer/drafter.h"

namespace rose::infer {

class LookupDrafter : public Drafter {
 public:
  /// A common end of fewer tokens than `least` is no match, one of `longest` is good enough; places
  /// more than `window` tokens ago are not looked at.
  explicit LookupDrafter(int least = 2, int longest = 16, int window = 16'384)
      : least_(least), longest_(longest), window_(window) {}

  void draft(std::span<const std::int32_t> text, int most, std::vector<std::int32_t>& out) override;

 private:
  int least_, longest_, window_;
};

}  // namespace rose::infer
