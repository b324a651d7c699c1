// Guess what comes next.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rose::infer {

/// Guesses the continuation of a text. A wrong guess costs time and changes nothing. Called between
/// steps, for one text after the other.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Replaces `out` by at most `most` tokens that may follow `text`, prompt and answer so far.
  virtual void draft(std::span<const std::int32_t> text, int most,
                     std::vector<std::int32_t>& out) = 0;
};

}  // namespace rose::infer
