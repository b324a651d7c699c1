// Round to bf16 by chance, the same chance every time.

#pragma once

#include <cstdint>
#include <span>

#include "rose/core/parallel.h"
#include "rose/kernels/dtype.h"

namespace rose::kernels {

/// What the chance of a rounding depends on, beside the element.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint32_t step = 0, parameter = 0;
  std::int64_t first_element = 0;  ///< where the first one lies in the unsharded tensor
};

/// The Philox stream of a step and a parameter; element e uses half of word e / 2, the low half when e is even.
constexpr std::uint64_t rounding_stream(const RoundingKey& key) {
  return std::uint64_t{key.step} << 32 | key.parameter;
}

void to_bf16(std::span<const float> x, std::span<bf16> y, core::ThreadPool& pool);
void to_bf16_stochastic(std::span<const float> x, const RoundingKey& key, std::span<bf16> y,
                        core::ThreadPool& pool);

}  // namespace rose::kernels
