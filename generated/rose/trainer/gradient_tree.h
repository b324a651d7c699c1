// Add groups of gradients by a balanced tree.

#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace rose::trainer {

/// Takes the gradients of groups in their order and adds neighbours as soon as both are there. Holds as many partial sums as the
/// number of groups so far has ones in binary.
class GradientTree {
 public:
  void clear() { partials_.clear(); }

  /// Reads the spans.
  void push(std::span<const std::span<float>> gradient) {
    std::vector<float> sum;
    for (const std::span<float> span : gradient) sum.insert(sum.end(), span.begin(), span.end());
    std::size_t groups = 1;
    while (!partials_.empty() && partials_.back().first == groups) {
      std::vector<float> left = std::move(partials_.back().second);
      partials_.pop_back();
      for (std::size_t i = 0; i < sum.size(); ++i) left[i] += sum[i];
      sum = std::move(left);
      groups *= 2;
    }
    partials_.emplace_back(groups, std::move(sum));
  }

  /// Writes the sum of a power of two of groups into the spans.
  void take(std::span<const std::span<float>> gradient) const {
    auto from = partials_.front().second.begin();
    for (const std::span<float> span : gradient) {
      std::copy_n(from, span.size(), span.begin());
      from += static_cast<std::ptrdiff_t>(span.size());
    }
  }

  std::size_t partials() const { return partials_.size(); }

 private:
  std::vector<std::pair<std::size_t, std::vector<float>>> partials_;  // groups in it, sum
};

}  // namespace rose::trainer
