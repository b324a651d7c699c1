// Lay out the blocks exactly as they are stored.

#pragma once

#include <cstdint>

#include "rose/kernels/dtype.h"

/// The block formats of the GGML family. A row of a weight matrix is a run of blocks; a block
/// never crosses rows. Multi-byte fields are little-endian, blocks are packed without padding and
/// aligned to two bytes.
namespace rose::kernels {

inline constexpr int block_size = 32;         ///< weights in a simple block
inline constexpr int super_block_size = 256;  ///< weights in a K block: 8 or 16 sub-blocks

// Thirty-two weights, one scale, perhaps one minimum.
struct BlockQ8_0 {  // x = d q
  f16 d;
  std::int8_t q[32];
};
struct BlockQ4_0 {  // x = d (q - 8)
  f16 d;
  std::uint8_t q[16];  ///< byte j: weight j in the low nibble, weight j + 16 in the high one
};
struct BlockQ4_1 {  // x = d q + m
  f16 d, m;
  std::uint8_t q[16];
};
struct BlockQ5_0 {  // x = d (q - 16)
  f16 d;
  std::uint8_t high[4];  ///< fifth bits, bit i of the 32-bit word is weight i's
  std::uint8_t q[16];
};
struct BlockQ5_1 {  // x = d q + m
  f16 d, m;
  std::uint8_t high[4];
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);

// Two hundred and fifty-six weights, scales quantised once more.
struct BlockQ4_K {  // x = (d a_s) q - (min b_s), sub-blocks s of 32
  f16 d, min;
  std::uint8_t scales[12];  ///< eight pairs (a_s, b_s) of six bits
  std::uint8_t q[128];      ///< 32 bytes per two sub-blocks: the even one low, the odd one high
};
struct BlockQ5_K {
  f16 d, min;
  std::uint8_t scales[12];
  std::uint8_t high[32];  ///< bit s of byte j: fifth bit of weight j of sub-block s
  std::uint8_t q[128];
};
struct BlockQ6_K {  // x = (d a_s) (q - 32), sub-blocks of 16
  std::uint8_t low[128];
  std::uint8_t high[64];
  std::int8_t scales[16];
  f16 d;
};
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

struct SubBlock {
  int scale, min;
};

/// The s-th (scale, minimum) of the twelve packed bytes of Q4_K and Q5_K, 0 <= s < 8.
inline SubBlock unpack_sub_block(const std::uint8_t* bytes, int s) {
  if (s < 4) return {bytes[s] & 63, bytes[s + 4] & 63};
  return {(bytes[s + 4] & 15) | ((bytes[s - 4] >> 6) << 4),
          (bytes[s + 4] >> 4) | ((bytes[s] >> 6) << 4)};
}

}  // namespace rose::kernels
