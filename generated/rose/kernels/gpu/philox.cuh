// Philox on the device, word for word core::Rng.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/cuda.cuh"

namespace rose::kernels::gpu {

/// The four words of block `block` of stream `stream`: words 4 block to 4 block + 3 of core::Rng(seed, stream).
__device__ __forceinline__ uint4 philox(std::uint64_t seed, std::uint64_t stream,
                                        std::uint64_t block) {
  uint4 c =
      make_uint4(static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                 static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32));
  std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
  ROSE_UNROLL()
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t a_high = __umulhi(0xD2511F53u, c.x), a_low = 0xD2511F53u * c.x;
    const std::uint32_t b_high = __umulhi(0xCD9E8D57u, c.z), b_low = 0xCD9E8D57u * c.z;
    c = make_uint4(b_high ^ c.y ^ k0, b_low, a_high ^ c.w ^ k1, a_low);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Sixteen random bits for one element, and for a whole group whose first element is a multiple of eight.
__device__ __forceinline__ std::uint32_t rounding_bits(std::uint64_t seed, std::uint64_t stream,
                                                       std::uint64_t element) {
  const uint4 words = philox(seed, stream, element / 8);
  const std::uint32_t pair[4] = {words.x, words.y, words.z, words.w};
  std::uint32_t word = pair[0];
  ROSE_UNROLL()
  for (unsigned i = 1; i < 4; ++i) word = element / 2 % 4 == i ? pair[i] : word;
  return element % 2 == 0 ? word & 0xffffu : word >> 16;
}

// Add random bits below the last kept one, and cut.
__device__ __forceinline__ __nv_bfloat16 to_bf16_stochastic(float value, std::uint32_t random) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return __float2bfloat16_rn(value);
  return __ushort_as_bfloat16(static_cast<unsigned short>((bits + (random & 0xffffu)) >> 16));
}

/// The nearest bf16, or with `half` the bits of the nearest f16: a copy of a weight in either type.
__device__ __forceinline__ __nv_bfloat16 sixteen_bits(float x, bool half) {
  return half ? __ushort_as_bfloat16(__half_as_ushort(__float2half_rn(x))) : __float2bfloat16_rn(x);
}

}  // namespace rose::kernels::gpu
