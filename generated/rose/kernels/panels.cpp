// Store eight rows of weights side by side.

#include "rose/kernels/panels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rose/core/error.h"
#include "rose/kernels/block_reference.h"
#include "rose/kernels/blocks.h"
#include "rose/kernels/fixed.h"

namespace rose::kernels {

// Read thirty-two codes of any block type.
namespace {

template <class Block>
Block block_at(const std::byte* row, std::int64_t b) {
  Block block;
  std::memcpy(&block, row + b * static_cast<std::int64_t>(sizeof block), sizeof block);
  return block;
}

int nibble(const std::uint8_t* q, int i) {
  return i < 16 ? q[i] & 15 : q[i - 16] >> 4;
}

int fifth(const std::uint8_t* high, int i) {
  return (high[i / 8] >> i % 8 & 1) << 4;
}

// Blocks of thirty-two.
void scales(float scale, float minimum, BlockCodes& out) {
  out.scale[0] = out.scale[1] = scale;
  out.minimum = minimum;
}

void read(const BlockQ8_0& block, BlockCodes& out) {
  scales(to_float(block.d), 0.0f, out);
  std::copy_n(block.q, 32, out.q);
}

void read(const BlockQ4_0& block, BlockCodes& out) {
  scales(to_float(block.d), 0.0f, out);
  out.offset = 8;
  for (int i = 0; i < 32; ++i) out.q[i] = nibble(block.q, i);
}

void read(const BlockQ4_1& block, BlockCodes& out) {
  scales(to_float(block.d), to_float(block.m), out);
  for (int i = 0; i < 32; ++i) out.q[i] = nibble(block.q, i);
}

void read(const BlockQ5_0& block, BlockCodes& out) {
  scales(to_float(block.d), 0.0f, out);
  for (int i = 0; i < 32; ++i) out.q[i] = (nibble(block.q, i) | fifth(block.high, i)) - 16;
}

void read(const BlockQ5_1& block, BlockCodes& out) {
  scales(to_float(block.d), to_float(block.m), out);
  for (int i = 0; i < 32; ++i) out.q[i] = nibble(block.q, i) | fifth(block.high, i);
}

// Sub-blocks of two hundred and fifty-six.
void read(const BlockQ4_K& block, int s, BlockCodes& out) {
  const SubBlock sub = unpack_sub_block(block.scales, s);
  scales(to_float(block.d) * static_cast<float>(sub.scale),
         -(to_float(block.min) * static_cast<float>(sub.min)), out);
  const std::uint8_t* q = block.q + s / 2 * 32;
  for (int i = 0; i < 32; ++i) out.q[i] = q[i] >> s % 2 * 4 & 15;
}

void read(const BlockQ5_K& block, int s, BlockCodes& out) {
  const SubBlock sub = unpack_sub_block(block.scales, s);
  scales(to_float(block.d) * static_cast<float>(sub.scale),
         -(to_float(block.min) * static_cast<float>(sub.min)), out);
  const std::uint8_t* q = block.q + s / 2 * 32;
  for (int i = 0; i < 32; ++i) out.q[i] = (q[i] >> s % 2 * 4 & 15) | (block.high[i] >> s & 1) << 4;
}

void read(const BlockQ6_K& block, int s, BlockCodes& out) {
  for (int half = 0; half < 2; ++half)
    out.scale[half] = to_float(block.d) * static_cast<float>(block.scales[2 * s + half]);
  const std::uint8_t* low = block.low + 64 * (s / 4) + 32 * (s % 2);
  const std::uint8_t* high = block.high + 32 * (s / 4);
  const int part = s % 4;
  for (int i = 0; i < 32; ++i)
    out.q[i] = ((low[i] >> part / 2 * 4 & 15) | (high[i] >> 2 * part & 3) << 4) - 32;
}

}  // namespace

BlockCodes read_codes(DType dtype, const std::byte* row, std::int64_t b) {
  BlockCodes codes{};
  switch (dtype) {
    case DType::q8_0: read(block_at<BlockQ8_0>(row, b), codes); break;
    case DType::q4_0: read(block_at<BlockQ4_0>(row, b), codes); break;
    case DType::q4_1: read(block_at<BlockQ4_1>(row, b), codes); break;
    case DType::q5_0: read(block_at<BlockQ5_0>(row, b), codes); break;
    case DType::q5_1: read(block_at<BlockQ5_1>(row, b), codes); break;
    case DType::q4_k: read(block_at<BlockQ4_K>(row, b / 8), static_cast<int>(b % 8), codes); break;
    case DType::q5_k: read(block_at<BlockQ5_K>(row, b / 8), static_cast<int>(b % 8), codes); break;
    case DType::q6_k: read(block_at<BlockQ6_K>(row, b / 8), static_cast<int>(b % 8), codes); break;
    default:
      throw core::Error(core::Code::unsupported, fmt::format("{} has no blocks", info(dtype).name));
  }
  return codes;
}

// Write the records of a panel.
namespace {

void put_scale(const PanelFormat& format, float value, std::byte* at, std::int64_t row) {
  if (format.half_scales) {
    const f16 half = to_f16(value);
    std::memcpy(at + 2 * row, &half, sizeof half);
  } else {
    std::memcpy(at + 4 * row, &value, sizeof value);
  }
}

/// Codes of one row, from the `from`-th of its block, into a record.
void put_codes(const PanelFormat& format, const BlockCodes& codes, std::int64_t from,
               std::int64_t row, std::byte* record) {
  std::byte* at = record + format.codes_at() + 4 * row;
  for (std::int64_t i = 0; i < format.group; ++i) {
    const auto q = static_cast<std::uint8_t>(codes.q[from + i]);
    const std::int64_t g = i / 4, j = i % 4;
    if (format.nibbles) {  // even fours in the low nibbles, odd ones in the high
      at[g / 2 * 32 + j] |= static_cast<std::byte>(q << g % 2 * 4);
    } else {  // bytes 0 and 2: the first pair; 1 and 3: the second
      at[g * 32 + (j % 2 * 2 + j / 2)] = static_cast<std::byte>(q);
    }
  }
}

}  // namespace

std::size_t panel_bytes(const MatrixView& w) {
  if (!has_panels(w.dtype)) return 0;
  const PanelFormat format = panel_format(w.dtype);
  const std::int64_t panels = (w.rows + panel_rows - 1) / panel_rows;
  return static_cast<std::size_t>(panels * (w.cols / format.group) * format.record_bytes());
}

void make_panels(const MatrixView& w, std::byte* out, core::ThreadPool& pool) {
  const PanelFormat format = panel_format(w.dtype);
  const std::int64_t records = w.cols / format.group, per_block = fixed_block / format.group;
  const std::int64_t panels = (w.rows + panel_rows - 1) / panel_rows;
  std::fill_n(out, panel_bytes(w), std::byte{0});
  pool.for_range(panels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin * panel_rows; r < std::min(end * panel_rows, w.rows); ++r) {
      std::byte* panel = out + r / panel_rows * records * format.record_bytes();
      for (std::int64_t b = 0; b < w.cols / fixed_block; ++b) {
        const BlockCodes codes = read_codes(w.dtype, w.row(r), b);
        for (std::int64_t part = 0; part < per_block; ++part) {
          std::byte* record = panel + (b * per_block + part) * format.record_bytes();
          put_scale(format, codes.scale[part], record, r % panel_rows);
          if (format.minimum)
            put_scale(format, codes.minimum, record + format.scale_bytes(), r % panel_rows);
          put_codes(format, codes, part * format.group, r % panel_rows, record);
        }
      }
    }
  });
}

// Define the product with a row of blocks.
float reference::block_dot(std::span<const float> x, DType dtype, const std::byte* row) {
  const std::int64_t group = panel_format(dtype).group;
  float y = 0.0f;
  for (std::size_t b = 0; b * fixed_block < x.size(); ++b) {
    const BlockCodes w = read_codes(dtype, row, static_cast<std::int64_t>(b));
    const std::span<const float> block = x.subspan(b * fixed_block, fixed_block);
    float largest = 0.0f;
    for (const float value : block) {
      if (!(std::fabs(value) <= largest)) largest = std::fabs(value);  // a NaN stays
    }
    const FixedScale unit = fixed_scale(largest);
    if (unit.inverse == 0.0f) return unit.scale;
    std::int64_t sum = 0;
    for (std::int64_t from = 0; from < fixed_block; from += group) {
      std::int64_t high = 0, low = 0;
      for (std::int64_t i = from; i < from + group; ++i) {
        const auto a = static_cast<std::int64_t>(
            std::nearbyint(block[static_cast<std::size_t>(i)] * unit.inverse));
        const std::int64_t upper = (a + 128) >> 8;
        high += upper * (w.q[i] - w.offset);
        low += (a - 256 * upper) * (w.q[i] - w.offset);
        sum += a;
      }
      const float dot =
          std::fma(256.0f, static_cast<float>(high), static_cast<float>(low));  // exact sums
      y = std::fma(w.scale[from / 16], unit.scale * dot, y);
    }
    if (panel_format(dtype).minimum)
      y = std::fma(w.minimum, unit.scale * static_cast<float>(sum), y);
  }
  return y;
}

}  // namespace rose::kernels
