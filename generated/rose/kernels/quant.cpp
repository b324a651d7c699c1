// Turn rows of blocks into floats and back.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "rose/core/error.h"
#include "rose/kernels/blocks.h"
#include "rose/kernels/quant.h"

namespace rose::kernels {
namespace {

// Decode a block of thirty-two.
void decode(const BlockQ8_0& block, float* out) {
  const float d = to_float(block.d);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.q[i]);
}

void decode(const BlockQ4_0& block, float* out) {
  const float d = to_float(block.d);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((block.q[j] & 15) - 8);
    out[j + 16] = d * static_cast<float>((block.q[j] >> 4) - 8);
  }
}

void decode(const BlockQ4_1& block, float* out) {
  const float d = to_float(block.d), m = to_float(block.m);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(block.q[j] & 15) + m;
    out[j + 16] = d * static_cast<float>(block.q[j] >> 4) + m;
  }
}

std::uint32_t word(const std::uint8_t* bytes) {
  std::uint32_t bits = 0;
  for (int i = 3; i >= 0; --i) bits = bits << 8 | bytes[i];
  return bits;
}

int fifth(std::uint32_t high, int i) {
  return static_cast<int>(high >> i & 1u) << 4;
}

void decode(const BlockQ5_0& block, float* out) {
  const float d = to_float(block.d);
  const std::uint32_t high = word(block.high);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(((block.q[j] & 15) | fifth(high, j)) - 16);
    out[j + 16] = d * static_cast<float>(((block.q[j] >> 4) | fifth(high, j + 16)) - 16);
  }
}

void decode(const BlockQ5_1& block, float* out) {
  const float d = to_float(block.d), m = to_float(block.m);
  const std::uint32_t high = word(block.high);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((block.q[j] & 15) | fifth(high, j)) + m;
    out[j + 16] = d * static_cast<float>((block.q[j] >> 4) | fifth(high, j + 16)) + m;
  }
}

// Decode a block of two hundred and fifty-six.
void decode(const BlockQ4_K& block, float* out) {
  const float d = to_float(block.d), min = to_float(block.min);
  for (int s = 0; s < 8; ++s, out += 32) {
    const SubBlock sub = unpack_sub_block(block.scales, s);
    const float scale = d * static_cast<float>(sub.scale),
                offset = min * static_cast<float>(sub.min);
    const std::uint8_t* q = block.q + s / 2 * 32;
    for (int j = 0; j < 32; ++j)
      out[j] = scale * static_cast<float>(q[j] >> s % 2 * 4 & 15) - offset;
  }
}

void decode(const BlockQ5_K& block, float* out) {
  const float d = to_float(block.d), min = to_float(block.min);
  for (int s = 0; s < 8; ++s, out += 32) {
    const SubBlock sub = unpack_sub_block(block.scales, s);
    const float scale = d * static_cast<float>(sub.scale),
                offset = min * static_cast<float>(sub.min);
    const std::uint8_t* q = block.q + s / 2 * 32;
    for (int j = 0; j < 32; ++j) {
      const int code = (q[j] >> s % 2 * 4 & 15) | (block.high[j] >> s & 1) << 4;
      out[j] = scale * static_cast<float>(code) - offset;
    }
  }
}

void decode(const BlockQ6_K& block, float* out) {
  const float d = to_float(block.d);
  for (int group = 0; group < 8; ++group, out += 32) {
    const int half = group / 4, part = group % 4;
    const std::uint8_t* low = block.low + 64 * half + 32 * (part % 2);
    const std::uint8_t* high = block.high + 32 * half;
    for (int j = 0; j < 32; ++j) {
      const int code = (low[j] >> part / 2 * 4 & 15) | (high[j] >> 2 * part & 3) << 4;
      const int scale_index = 2 * group + j / 16;
      const float scale = d * static_cast<float>(block.scales[scale_index]);
      out[j] = scale * static_cast<float>(code - 32);
    }
  }
}

// Walk a row block by block.
void decode(const f16& value, float* out) {
  *out = to_float(value);
}
void decode(const bf16& value, float* out) {
  *out = to_float(value);
}

template <typename Block, int elements>
void decode_row(const void* row, float* out, std::int64_t n) {
  const auto* bytes = static_cast<const std::byte*>(row);
  for (std::int64_t i = 0; i < n; i += elements, bytes += sizeof(Block)) {
    Block block;
    std::memcpy(&block, bytes, sizeof block);
    decode(block, out + i);
  }
}

void require_whole_blocks(DType type, std::int64_t n) {
  if (n >= 0 && n % info(type).block_elements == 0) return;
  throw core::Error(core::Code::invalid_argument,
                    fmt::format("a row of {} weights is no whole number of {} blocks of {}", n,
                                info(type).name, info(type).block_elements))
      .hint("keep rows of this length in f16, bf16 or f32");
}

// Choose the step and the codes of a block.

/// The step as it is stored; `reach` is the largest magnitude that it was derived from.
f16 stored(float value, float reach) {
  const f16 half = to_f16(value);
  if (!std::isfinite(to_float(half))) {
    throw core::Error(
        core::Code::out_of_range,
        fmt::format("a block with a weight of magnitude {} cannot be quantised", reach))
        .hint("keep this tensor in bf16 or f32");
  }
  return half;
}

/// 1/d, or zero where that is not finite: such a step is stored as zero anyway.
float inverse(float d) {
  const float id = 1.0f / d;
  return std::isfinite(id) ? id : 0.0f;
}

float largest(const float* x) {  // the weight of largest magnitude, the first one of equals
  float best = 0.0f;
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(x[i]) > std::fabs(best)) best = x[i];
  }
  return best;
}

int code(float position, int top) {
  return std::clamp(static_cast<int>(position), 0, top);
}  // truncates

void encode(const float* x, BlockQ8_0& block) {
  const float reach = std::fabs(largest(x)), d = reach / 127.0f, id = inverse(d);
  block.d = stored(d, reach);
  for (int i = 0; i < 32; ++i)
    block.q[i] = static_cast<std::int8_t>(std::round(x[i] * id));  // ties away from zero
}

void encode(const float* x, BlockQ4_0& block) {
  const float top = largest(x), d = top / -8.0f, id = inverse(d);
  block.d = stored(d, std::fabs(top));
  for (int j = 0; j < 16; ++j) {
    const int low = code(x[j] * id + 8.5f, 15), high = code(x[j + 16] * id + 8.5f, 15);
    block.q[j] = static_cast<std::uint8_t>(low | high << 4);
  }
}

void encode(const float* x, BlockQ4_1& block) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float m = *low, d = (*high - m) / 15.0f, id = inverse(d);
  block.d = stored(d, *high - m);
  block.m = stored(m, std::fabs(m));
  for (int j = 0; j < 16; ++j) {
    const int first = code((x[j] - m) * id + 0.5f, 15),
              second = code((x[j + 16] - m) * id + 0.5f, 15);
    block.q[j] = static_cast<std::uint8_t>(first | second << 4);
  }
}

/// Splits 32 five-bit codes into nibbles and the word of fifth bits.
void pack_five(const int* codes, std::uint8_t* high, std::uint8_t* q) {
  for (int j = 0; j < 16; ++j)
    q[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  for (int byte = 0; byte < 4; ++byte) {
    int bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (codes[8 * byte + i] >> 4) << i;
    high[byte] = static_cast<std::uint8_t>(bits);
  }
}

void encode(const float* x, BlockQ5_0& block) {
  const float top = largest(x), d = top / -16.0f, id = inverse(d);
  block.d = stored(d, std::fabs(top));
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = code(x[i] * id + 16.5f, 31);
  pack_five(codes, block.high, block.q);
}

void encode(const float* x, BlockQ5_1& block) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float m = *low, d = (*high - m) / 31.0f, id = inverse(d);
  block.d = stored(d, *high - m);
  block.m = stored(m, std::fabs(m));
  int codes[32];
  for (int i = 0; i < 32; ++i) codes[i] = code((x[i] - m) * id + 0.5f, 31);
  pack_five(codes, block.high, block.q);
}

// Encode a row block by block.
template <typename Block>
void encode_row(const float* values, void* row, std::int64_t n) {
  auto* bytes = static_cast<std::byte*>(row);
  for (std::int64_t i = 0; i < n; i += 32, bytes += sizeof(Block)) {
    for (int j = 0; j < 32; ++j) {
      if (std::isfinite(values[i + j])) continue;
      throw core::Error(
          core::Code::out_of_range,
          fmt::format("weight {} of the row is {}, which no block can hold", i + j, values[i + j]))
          .hint("the checkpoint is damaged, or its training diverged");
    }
    Block block;
    encode(values + i, block);
    std::memcpy(bytes, &block, sizeof block);
  }
}

}  // namespace

// Pick the block type.
void dequantize_row(DType type, const void* row, float* out, std::int64_t n) {
  require_whole_blocks(type, n);
  switch (type) {
    case DType::f32:
      if (n > 0) std::memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::f16: return decode_row<f16, 1>(row, out, n);
    case DType::bf16: return decode_row<bf16, 1>(row, out, n);
    case DType::q8_0: return decode_row<BlockQ8_0, 32>(row, out, n);
    case DType::q4_0: return decode_row<BlockQ4_0, 32>(row, out, n);
    case DType::q4_1: return decode_row<BlockQ4_1, 32>(row, out, n);
    case DType::q5_0: return decode_row<BlockQ5_0, 32>(row, out, n);
    case DType::q5_1: return decode_row<BlockQ5_1, 32>(row, out, n);
    case DType::q4_k: return decode_row<BlockQ4_K, 256>(row, out, n);
    case DType::q5_k: return decode_row<BlockQ5_K, 256>(row, out, n);
    case DType::q6_k: return decode_row<BlockQ6_K, 256>(row, out, n);
    case DType::i32:
    case DType::u8: break;
  }
  throw core::Error(core::Code::invalid_argument,
                    fmt::format("{} holds no weights", info(type).name));
}

bool can_quantize(DType type) {
  switch (type) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::q8_0:
    case DType::q4_0:
    case DType::q4_1:
    case DType::q5_0:
    case DType::q5_1: return true;
    default: return false;
  }
}

void quantize_row(DType type, const float* values, void* row, std::int64_t n) {
  require_whole_blocks(type, n);
  auto* bytes = static_cast<std::byte*>(row);
  const auto convert = [&](auto to) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto value = to(values[i]);
      std::memcpy(bytes + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
    }
  };
  switch (type) {
    case DType::f32: return convert([](float x) { return x; });
    case DType::f16: return convert([](float x) { return to_f16(x); });
    case DType::bf16: return convert([](float x) { return to_bf16(x); });
    case DType::q8_0: return encode_row<BlockQ8_0>(values, row, n);
    case DType::q4_0: return encode_row<BlockQ4_0>(values, row, n);
    case DType::q4_1: return encode_row<BlockQ4_1>(values, row, n);
    case DType::q5_0: return encode_row<BlockQ5_0>(values, row, n);
    case DType::q5_1: return encode_row<BlockQ5_1>(values, row, n);
    default: break;
  }
  throw core::Error(core::Code::unsupported,
                    fmt::format("writing {} is not supported yet", info(type).name))
      .hint("choose f32, f16, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0");
}

}  // namespace rose::kernels
