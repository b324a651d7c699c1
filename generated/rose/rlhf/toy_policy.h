// Logits from the last four tokens.

#pragma once

#include <array>
#include <span>
#include <vector>

#include "rose/rlhf/toy_world.h"

namespace rose::rlhf {

/// A table of [4, 16, 16] numbers: one row of logits for each of the last four tokens.
class ToyPolicy {
 public:
  static constexpr std::size_t window = 4, vocabulary = toy::vocabulary;
  using Logits = std::array<float, vocabulary>;

  /// Of the token at position n, given tokens [0, n).
  Logits logits(std::span<const std::int32_t> history) const;
  /// Adds the gradient of the logits at this place to that of the table.
  void accumulate(std::span<const std::int32_t> history, const Logits& gradient);
  /// One step of Adam upwards, and the gradient is zero again.
  void step(double rate);

 private:
  static std::size_t row(std::span<const std::int32_t> history, std::size_t back);
  static constexpr std::size_t size = window * vocabulary * vocabulary;
  std::vector<float> weights_ = std::vector<float>(size), gradient_ = weights_;
  std::vector<double> first_ = std::vector<double>(size), second_ = first_;
  int steps_ = 0;
};

}  // namespace rose::rlhf
