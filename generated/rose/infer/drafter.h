// Guess what comes next.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rose::infer {

/// Guesses the continuation of a text. A wrong guess costs time and changes nothing. Called between steps; must depend on the text
/// alone, or the length of a row would depend on the traffic.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual void draft(std::span<const std::int32_t> text, int most,
                     std::vector<std::int32_t>& out) = 0;
};

}  // namespace rose::infer
