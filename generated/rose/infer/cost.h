// Count what a step of the engine costs.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/roofline.h"
#include "rose/model/files/config.h"

namespace rose::infer {

/// What a step processes, summed over its sequences.
struct Work {
  std::int64_t tokens = 0;    ///< new tokens
  std::int64_t logits = 0;    ///< tokens after which something is chosen
  std::int64_t attended = 0;  ///< pairs of query and key
  std::int64_t cached = 0;    ///< keys in the cache once the new ones are there

  /// Adds a sequence: `count` new tokens after `before` cached ones; `choose`: the last one's logits are wanted.
  Work& add(std::int64_t before, std::int64_t count, bool choose);
};

/// Bytes of one number.
struct Widths {
  double weight = 2;
  double kv = 2;
};

/// Operations and bytes of a step, at the least. A multiply and an add are two operations.
kernels::gpu::Cost step_cost(const model::Config& config, const Work& work, Widths widths = {});

/// How many positions fit into `bytes` of cache.
std::int64_t positions_in(const model::Config& config, double bytes, double kv_width = 2);

}  // namespace rose::infer
