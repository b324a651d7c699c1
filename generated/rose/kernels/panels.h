// Store eight rows of weights side by side.

#pragma once

#include <cstddef>
#include <cstdint>

#include "rose/core/parallel.h"
#include "rose/kernels/view.h"

namespace rose::kernels {

inline constexpr std::int64_t panel_rows = 8;

/// How a block type looks in a panel. A record holds `group` consecutive weights of eight rows:
/// eight scales, eight minima if the type has them, then the integer codes, four of a row together.
struct PanelFormat {
  std::int64_t group;   ///< weights that share a scale
  bool nibbles;         ///< unsigned codes of four bits; otherwise signed ones of eight
  bool half_scales;     ///< scales and minima as fp16, which is exact; otherwise fp32
  bool minimum;         ///< x = scale q + minimum
  std::int32_t offset;  ///< x = scale (q - offset)

  constexpr std::int64_t scale_bytes() const { return panel_rows * (half_scales ? 2 : 4); }
  constexpr std::int64_t codes_at() const { return scale_bytes() * (minimum ? 2 : 1); }
  constexpr std::int64_t record_bytes() const {
    return codes_at() + panel_rows * group / (nibbles ? 2 : 1);
  }
};

constexpr PanelFormat panel_format(DType dtype) {
  switch (dtype) {
    case DType::q4_0: return {32, true, true, false, 8};
    case DType::q4_1: return {32, true, true, true, 0};
    case DType::q5_1: return {32, false, true, true, 0};
    case DType::q4_k: return {32, true, false, true, 0};
    case DType::q5_k: return {32, false, false, true, 0};
    case DType::q6_k: return {16, false, false, false, 0};
    default: return {32, false, true, false, 0};  // q8_0, q5_0
  }
}

/// Whether a matrix of this type can be arranged in panels: all block types can.
constexpr bool has_panels(DType dtype) {
  return dtype >= DType::q8_0;
}

/// Bytes of the panels of a matrix; 0 for a type without panels.
std::size_t panel_bytes(const MatrixView& w);

/// Arranges w in `out`, panel_bytes(w) long. The last panel is filled up with rows of zeros.
void make_panels(const MatrixView& w, std::byte* out, core::ThreadPool& pool);

}  // namespace rose::kernels
