// Wilson's interval and the bootstrap's.

#include "rose/trainer/evaluate/intervals.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "rose/core/rng.h"

namespace rose::trainer {

Interval wilson_interval(std::size_t right, std::size_t n) {
  constexpr double z = 1.959963984540054;
  const auto count = static_cast<double>(n);
  const double rate = static_cast<double>(right) / count, middle = rate + z * z / (2 * count);
  const double half = z * std::sqrt(rate * (1 - rate) / count + z * z / (4 * count * count));
  return {(middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)};
}

Interval bootstrap_interval(std::size_t n,
                            const std::function<double(std::span<const std::size_t>)>& statistic,
                            std::uint64_t seed, int resamples) {
  core::Rng rng(seed);
  std::vector<std::size_t> drawn(n);
  std::vector<double> values;
  for (int r = 0; r < resamples; ++r) {
    for (std::size_t& index : drawn) index = rng.below64(n);
    values.push_back(statistic(drawn));
  }
  std::ranges::sort(values);
  const auto at = [&](double part) {
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
  };
  constexpr double tail = 0.025;
  return {at(tail), at(1 - tail)};
}

}  // namespace rose::trainer
