// Name the order in which every forward sum is taken.

#pragma once

#include <cstdint>

/// The numerics contract: what two computations must agree on to agree bit for bit.
/// The version is kept in checkpoints, cache keys and recorded results.
namespace rose::kernels::numerics {

inline constexpr int version = 1;

/// On a CPU one output is one dot product: lane j of 16 sums the products with k = j mod 16.
inline constexpr int lanes = 16;

/// On a GPU a product of 16-bit inputs adds 16 terms at a time, k ascending, into one fp32 accumulator for each output; one of fp32
/// inputs is one ascending chain of fma. No forward product splits its K: a split would have to depend on K alone. Every operation of
/// the graph rounds its result once to the type of the activations, fused or not.
inline constexpr int product_step = 16;

/// Keys are taken in tiles, and running sums are cut into splits, both counted from the first key.
inline constexpr int key_tile = 128;
inline constexpr int key_split = 512;

/// A log-sum-exp over a row of logits is merged from tiles of this many columns, ascending.
inline constexpr int logsumexp_tile = 128;
/// On a GPU the tiles of a run of this many columns are merged first, and then the runs, ascending both.
inline constexpr int logsumexp_run = 1024;

/// Wide heads take half as many keys at a time.
constexpr int key_tile_of(std::int64_t head_dim) {
  return head_dim >= 256 ? 64 : key_tile;
}

}  // namespace rose::kernels::numerics
