// Leave some numbers out.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"

namespace rose::kernels {

/// Which numbers are left out, and what becomes of the others.
struct Dropout {
  float rate = 0;   ///< the share that is left out, in [0, 1)
  float scale = 1;  ///< what is kept is multiplied by scale / (1 - rate)
  std::uint64_t seed = 0, stream = 0;

  float factor() const { return scale / (1.0f - rate); }
  /// Element e is left out when word e of core::Rng(seed, stream) is below it.
  std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(static_cast<double>(rate) * 0x1p32);
  }
};

/// y[i] = x[i] factor, or 0, as element first + i. y may be x. Its own way back.
void dropout(std::span<const float> x, const Dropout& how, std::uint64_t first, std::span<float> y,
             core::ThreadPool& pool);

}  // namespace rose::kernels
