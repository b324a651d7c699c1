// Say how a row is added up on a GPU, and do the same on a CPU.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "rose/kernels/dtype.h"

namespace rose::kernels::numerics {

/// A row's statistics on a GPU: group g of eight neighbours is added, ascending, to slot g mod 256.
inline constexpr int row_group = 8;
inline constexpr int row_slots = 256;

}  // namespace rose::kernels::numerics

namespace rose::kernels::reference {

// Fold 256 slots by halves.

/// add(sum, k) returns the sum with element k of the row added: sum + x[k], fma(x[k], x[k], sum), …
template <class Add>
float row_total(std::int64_t count, Add add) {
  std::array<float, numerics::row_slots> slot{};
  for (std::int64_t k = 0; k < count; ++k) {
    float& mine = slot[static_cast<std::size_t>(k / numerics::row_group % numerics::row_slots)];
    mine = add(mine, k);
  }
  for (std::size_t half = slot.size() / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) slot[i] += slot[i + half];
  }
  return slot[0];
}

/// What an activation type leaves of a number.
inline float round_to(DType dtype, float x) {
  if (dtype == DType::bf16) return to_float(to_bf16(x));
  return dtype == DType::f16 ? to_float(to_f16(x)) : x;
}

}  // namespace rose::kernels::reference
