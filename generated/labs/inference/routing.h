// Queues and routes, for arithmetic.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

namespace rose::labs {

/// The chance that a request has to wait for one of n servers with load a = rho * n < n.
inline double erlang_c(int n, double a) {
  double term = 1.0, sum = 0.0;  // a^k / k!
  for (int k = 0; k < n; ++k) {
    sum += term;
    term *= a / (k + 1);
  }
  const double full = term / (1.0 - a / n);
  return full / (sum + full);
}

// Give every text a home.
inline std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Of the replicas, by number, the one where the text is at home.
inline std::size_t home_of(std::uint64_t text, const std::vector<std::uint64_t>& replicas) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < replicas.size(); ++i)
    if (mix(text ^ mix(replicas[i])) > mix(text ^ mix(replicas[best]))) best = i;
  return best;
}

// A cache that forgets the least recently used.
class LeastRecentlyUsed {
 public:
  explicit LeastRecentlyUsed(std::size_t most) : most_(most) {}
  bool touch(std::uint64_t text) {  ///< whether it was there; it is now
    const auto found = where_.find(text);
    const bool hit = found != where_.end();
    if (hit) order_.erase(found->second);
    order_.push_front(text);
    where_[text] = order_.begin();
    if (order_.size() > most_) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    return hit;
  }

 private:
  std::size_t most_;
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> where_;
};

}  // namespace rose::labs
