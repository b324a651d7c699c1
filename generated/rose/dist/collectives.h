// Send, receive, add: collectives.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rose/dist/wire.h"

namespace rose::dist {

/// Where the pieces of n elements begin, and where the last ends: P + 1 numbers, pieces of equal size but for one element.
std::vector<std::size_t> even_pieces(std::size_t n, int pieces);

/// parts[0] becomes the sum of all by a balanced tree: neighbours first, then pairs of neighbours; one without a neighbour moves up.
template <class T>
void tree_sum(std::vector<std::vector<T>>& parts);

// Of float, double, std::int32_t and std::int64_t. All ranks pass vectors of one size. Pieces are those of `offsets`, as
// even_pieces() gives them; uneven ones may be passed.

void broadcast_tree(Wire& wire, const Call& call, std::span<std::byte> bytes, int root);
void all_gather_ring(Wire& wire, const Call& call, std::span<std::byte> bytes,
                     std::span<const std::size_t> offsets);
void all_gather_doubling(Wire& wire, const Call& call, std::span<std::byte> bytes,
                         std::span<const std::size_t> offsets);  ///< P a power of two
/// Piece r of `out` goes to rank r; what comes from rank r becomes piece r of `in`.
void all_to_all_direct(Wire& wire, const Call& call, std::span<const std::byte> out,
                       std::span<const std::size_t> out_offsets, std::span<std::byte> in,
                       std::span<const std::size_t> in_offsets);

template <class T>
void reduce_tree(Wire& wire, const Call& call, std::span<T> values);  ///< to rank 0, by tree_sum
/// Afterwards piece r is right on rank r; the others hold anything.
template <class T>
void reduce_scatter_ring(Wire& wire, const Call& call, std::span<T> values,
                         std::span<const std::size_t> offsets);
template <class T>
void reduce_scatter_direct(Wire& wire, const Call& call, std::span<T> values,
                           std::span<const std::size_t> offsets);  ///< by tree_sum
template <class T>
void reduce_scatter_halving(Wire& wire, const Call& call, std::span<T> values,
                            std::span<const std::size_t> offsets);  ///< P a power of two
template <class T>
void all_reduce_doubling(Wire& wire, const Call& call,
                         std::span<T> values);  ///< P a power of two; by tree_sum

}  // namespace rose::dist
