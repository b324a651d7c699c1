// Information and its estimation, in double precision.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

namespace rose::labs {

// Mean, variance and standard error of a stream of numbers.
class Running {
 public:
  void add(double x) {
    ++count_;
    const double before = x - mean_;
    mean_ += before / static_cast<double>(count_);
    squares_ += before * (x - mean_);
  }
  std::int64_t count() const { return count_; }
  double mean() const { return mean_; }
  double variance() const { return squares_ / static_cast<double>(count_ - 1); }  ///< count > 1
  double standard_error() const { return std::sqrt(variance() / static_cast<double>(count_)); }

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0;
};

// Entropy, cross-entropy, divergence, bits per byte.

/// In nats. A term with p = 0 is 0, whatever q is; one with p > 0 and q = 0 is infinite.
inline double cross_entropy(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) sum -= p[i] * std::log(q[i]);
  }
  return sum;
}

inline double entropy(std::span<const double> p) {
  return cross_entropy(p, p);
}

inline double kl(std::span<const double> p, std::span<const double> q) {
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > 0) sum += p[i] * std::log(p[i] / q[i]);
  }
  return std::max(sum, 0.0);  // a rounding may take it below
}

inline double bits_per_byte(double nats_per_token, double tokens, double bytes) {
  return nats_per_token * tokens / (std::numbers::ln2 * bytes);
}

// Log-sum-exp and softmax.
inline double log_sum_exp(std::span<const double> z) {
  const double infinity = std::numeric_limits<double>::infinity();
  double maximum = -infinity;
  for (const double x : z) maximum = std::max(maximum, x);
  if (maximum == -infinity) return maximum;  // nothing, or nothing possible
  double sum = 0;
  for (const double x : z) sum += std::exp(x - maximum);
  return maximum + std::log(sum);
}

inline std::vector<double> softmax(std::span<const double> z) {
  const double all = log_sum_exp(z);
  std::vector<double> q;
  for (const double x : z) q.push_back(std::exp(x - all));
  return q;
}

// Three estimates of KL(p, q) from one sample of p.
struct KlSample {
  double k1, k2, k3;
};

/// From the log-probabilities of x under the distribution that drew it, and under the other.
inline KlSample kl_sample(double log_p, double log_q) {
  const double log_r = log_q - log_p;
  return {-log_r, log_r * log_r / 2, std::expm1(log_r) - log_r};
}

// How many samples the weighted ones are worth.
inline double effective_sample_size(std::span<const double> log_weights) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const double w : log_weights) largest = std::max(largest, w);
  double sum = 0, squares = 0;
  for (const double w : log_weights) {  // relative to the largest: the scale cancels
    sum += std::exp(w - largest);
    squares += std::exp(2 * (w - largest));
  }
  return sum * sum / squares;
}

}  // namespace rose::labs
