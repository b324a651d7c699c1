// Fill rows with pieces.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rose::trainer {

/// Best-fit decreasing: for each row the indices of its pieces, longest first. Ties go to the lower
/// index, so the result is a function of the lengths. Throws core::Error when a length is not in
/// [1, capacity].
std::vector<std::vector<std::int64_t>> pack_best_fit(std::span<const std::int64_t> lengths,
                                                     std::int64_t capacity);

}  // namespace rose::trainer
