// Say attention again, plainly.

#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>

#include "rose/kernels/reference.h"

namespace rose::kernels::reference {

/// q [D] against keys and values [n][D]: tiles of 128 into a running split, splits of 512 merged left to right.
template <class Row, class Exp>
void attend(std::span<const float> q, std::int64_t n, const Row& key, const Row& value, float scale,
            const Exp& exp, std::span<float> out) {
  struct State {
    float max = -INFINITY, sum = 0.0f;
    std::array<float, 256> o{};
  } done, open;
  const auto merge = [&] {
    const float common = std::fmax(done.max, open.max);
    const float a = exp(done.max - common), b = exp(open.max - common);
    for (std::size_t d = 0; d < q.size(); ++d) done.o[d] = done.o[d] * a + open.o[d] * b;
    done.sum = done.sum * a + open.sum * b;
    done.max = common;
    open = State{};
  };
  const std::int64_t tile = numerics::key_tile_of(static_cast<std::int64_t>(q.size()));
  for (std::int64_t first = 0; first < n; first += tile) {
    if (first > 0 && first % numerics::key_split == 0) merge();
    const std::int64_t last = std::min(first + tile, n);
    std::array<float, numerics::key_tile> p{};
    float highest = open.max;
    for (std::int64_t j = first; j < last; ++j) {
      const float s = dot(q, key(j)) * scale;
      p[static_cast<std::size_t>(j - first)] = s;
      highest = std::fmax(highest, s);
    }
    std::array<float, numerics::lanes> lane{};
    for (std::int64_t j = 0; j < last - first; ++j) {
      float& weight = p[static_cast<std::size_t>(j)];
      weight = exp(weight - highest);
      lane[static_cast<std::size_t>(j % numerics::lanes)] += weight;
    }
    const float rescale = exp(open.max - highest);
    open.sum = std::fma(open.sum, rescale, tree(lane));
    open.max = highest;
    for (std::size_t d = 0; d < q.size(); ++d) {
      open.o[d] *= rescale;
      for (std::int64_t j = first; j < last; ++j) {
        open.o[d] = std::fma(p[static_cast<std::size_t>(j - first)], value(j)[d], open.o[d]);
      }
    }
  }
  merge();
  for (std::size_t d = 0; d < q.size(); ++d) out[d] = done.o[d] / done.sum;
}

}  // namespace rose::kernels::reference
