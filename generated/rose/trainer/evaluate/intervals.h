// Say how far a number can be trusted.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace rose::trainer {

struct Interval {
  double low = 0.0, high = 0.0;
};

/// Wilson's 95 % interval for a rate, `right` of `n` independent trials.
Interval wilson_interval(std::size_t right, std::size_t n);

/// The middle 95 % of `statistic` over resamples of n things, given as indices. A function of the seed.
Interval bootstrap_interval(std::size_t n,
                            const std::function<double(std::span<const std::size_t>)>& statistic,
                            std::uint64_t seed = 1, int resamples = 2000);

}  // namespace rose::trainer
