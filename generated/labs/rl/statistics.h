// Rates, attempts and differences.

#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rose::labs {

struct Interval {
  double low, high;
};

/// Wilson's interval for c successes in n independent trials.
inline Interval wilson(double c, double n, double z = 1.96) {
  const double p = c / n, middle = p + z * z / (2 * n);
  const double half = z * std::sqrt(p * (1 - p) / n + z * z / (4 * n * n));
  return {(middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)};
}

// At least one of k attempts, and all of them, from n.

/// The chance that a random k-subset of n holds none of the c marked ones.
inline double none_of(std::int64_t n, std::int64_t c, std::int64_t k) {
  double p = 1;
  for (std::int64_t i = 0; i < k; ++i)
    p *= std::fmax(0.0, static_cast<double>(n - c - i)) / static_cast<double>(n - i);
  return p;
}
inline double pass_at(std::int64_t n, std::int64_t c, std::int64_t k) {
  return 1 - none_of(n, c, k);
}
inline double pass_all(std::int64_t n, std::int64_t c, std::int64_t k) {
  return none_of(n, n - c, k);
}

// The standard error of a mean whose observations come in clusters.

/// values[i] belongs to cluster[i], numbered from 0 without gaps.
inline double clustered_error(std::span<const double> values,
                              std::span<const std::size_t> cluster) {
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double x : values) mean += x / n;
  std::vector<double> sums;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (cluster[i] >= sums.size()) sums.resize(cluster[i] + 1);
    sums[cluster[i]] += values[i] - mean;
  }
  double squares = 0;
  for (const double s : sums) squares += s * s;
  return std::sqrt(squares) / n;
}

}  // namespace rose::labs
