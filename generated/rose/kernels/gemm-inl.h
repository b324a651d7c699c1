// Included once per instruction set: the guard toggles (Highway's convention).
#if defined(ROSE_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROSE_KERNELS_GEMM_INL_H_
#undef ROSE_KERNELS_GEMM_INL_H_
#else
#define ROSE_KERNELS_GEMM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

inline constexpr std::int64_t kTileRows = 6;
inline constexpr std::int64_t kPanel = 2 * width;  ///< columns of a tile and of a packed panel
inline constexpr std::int64_t kDepthBlock = 256;

/// A matrix read with any strides, so that a transpose costs nothing.
struct Strided {
  const float* data;
  std::int64_t row, column;
};

// Copy operands into the order in which the tile reads them.

/// Floats that packing a [depth, columns] matrix takes.
inline std::int64_t packed_size(std::int64_t depth, std::int64_t columns) {
  return depth * ((columns + kPanel - 1) / kPanel * kPanel);
}

/// Packs panels [begin, end) of b [depth, columns]; panel p holds the columns from p * kPanel.
inline void pack_panels(const Strided& b, std::int64_t depth, std::int64_t columns,
                        std::int64_t begin, std::int64_t end, float* HWY_RESTRICT packed) {
  const std::int64_t padded = (columns + kPanel - 1) / kPanel * kPanel;
  for (std::int64_t d0 = 0; d0 < depth; d0 += kDepthBlock) {
    const std::int64_t rows = std::min(kDepthBlock, depth - d0);
    for (std::int64_t panel = begin; panel < end; ++panel) {
      float* HWY_RESTRICT out = packed + d0 * padded + panel * kPanel * rows;
      const std::int64_t j0 = panel * kPanel, have = std::min(kPanel, columns - j0);
      for (std::int64_t d = 0; d < rows; ++d, out += kPanel) {
        const float* in = b.data + (d0 + d) * b.row + j0 * b.column;
        if (b.column == 1 && have == kPanel) {
          store(load(in), out);
          store(load(in + width), out + width);
          continue;
        }
        for (std::int64_t j = 0; j < have; ++j) out[j] = in[j * b.column];
        for (std::int64_t j = have; j < kPanel; ++j) out[j] = 0.0f;
      }
    }
  }
}

/// Packs rows [i, i + 6) of a, steps [d0, d0 + depth), depth-major; rows beyond `rows` are zeros.
/// The inner loop runs along whichever direction is contiguous in a.
inline void pack_rows(const Strided& a, std::int64_t i, std::int64_t rows, std::int64_t d0,
                      std::int64_t depth, float* HWY_RESTRICT packed) {
  const std::int64_t have = std::min(kTileRows, rows - i);
  if (have < kTileRows) std::fill(packed, packed + kTileRows * depth, 0.0f);
  const float* in = a.data + i * a.row + d0 * a.column;
  if (a.row == 1 && have == kTileRows) {  // a number of steps that the compiler knows: no call
    for (std::int64_t d = 0; d < depth; ++d) {
      for (std::int64_t r = 0; r < kTileRows; ++r) packed[d * kTileRows + r] = in[d * a.column + r];
    }
  } else {
    for (std::int64_t r = 0; r < have; ++r) {
      for (std::int64_t d = 0; d < depth; ++d)
        packed[d * kTileRows + r] = in[r * a.row + d * a.column];
    }
  }
}

// Accumulate six rows by two vectors in registers.

/// out [6, kPanel] = sum over d of a[d, 6] (outer) b[d, kPanel], one ascending chain of fused
/// multiply-adds per element; added to out when `add`.
HWY_INLINE void tile(std::int64_t depth, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                     float* HWY_RESTRICT out, std::int64_t stride, bool add) {
  const Vec zero = set(0.0f);
  Vec c00 = zero, c01 = zero, c10 = zero, c11 = zero, c20 = zero, c21 = zero;
  Vec c30 = zero, c31 = zero, c40 = zero, c41 = zero, c50 = zero, c51 = zero;
  for (std::int64_t d = 0; d < depth; ++d, a += kTileRows, b += kPanel) {
    const Vec b0 = load(b), b1 = load(b + width);
    Vec v = set(a[0]);
    c00 = fma(v, b0, c00), c01 = fma(v, b1, c01);
    v = set(a[1]);
    c10 = fma(v, b0, c10), c11 = fma(v, b1, c11);
    v = set(a[2]);
    c20 = fma(v, b0, c20), c21 = fma(v, b1, c21);
    v = set(a[3]);
    c30 = fma(v, b0, c30), c31 = fma(v, b1, c31);
    v = set(a[4]);
    c40 = fma(v, b0, c40), c41 = fma(v, b1, c41);
    v = set(a[5]);
    c50 = fma(v, b0, c50), c51 = fma(v, b1, c51);
  }
  const auto put = [&](std::int64_t row, Vec left, Vec right) HWY_ATTR {
    float* HWY_RESTRICT to = out + row * stride;
    store(add ? hn::Add(load(to), left) : left, to);
    store(add ? hn::Add(load(to + width), right) : right, to + width);
  };
  put(0, c00, c01), put(1, c10, c11), put(2, c20, c21);
  put(3, c30, c31), put(4, c40, c41), put(5, c50, c51);
}

// Walk the row tiles of a thread's share.

/// c[i, j] = sum over p of a[i, p] b[p, j] for the row tiles [first, last) of c [rows, columns]
/// (contiguous rows, `stride` apart), b packed by pack_panels; added to c when `add`.
inline void multiply_rows(const Strided& a, const float* HWY_RESTRICT packed, std::int64_t rows,
                          std::int64_t depth, std::int64_t columns, float* HWY_RESTRICT c,
                          std::int64_t stride, bool add, std::int64_t first, std::int64_t last) {
  HWY_ALIGN float left[static_cast<std::size_t>(kTileRows * kDepthBlock)];
  HWY_ALIGN float edge[static_cast<std::size_t>(kTileRows * kPanel)];
  const std::int64_t panels = (columns + kPanel - 1) / kPanel;
  constexpr std::int64_t group = 256 / kPanel;
  for (std::int64_t d0 = 0; d0 < depth; d0 += kDepthBlock) {
    const std::int64_t deep = std::min(kDepthBlock, depth - d0);
    const float* block = packed + d0 * panels * kPanel;
    const bool onto = add || d0 > 0;
    for (std::int64_t g = 0; g < panels; g += group) {
      for (std::int64_t i = first * kTileRows; i < std::min(last * kTileRows, rows);
           i += kTileRows) {
        pack_rows(a, i, rows, d0, deep, left);
        for (std::int64_t p = g; p < std::min(g + group, panels); ++p) {
          const std::int64_t high = std::min(kTileRows, rows - i),
                             wide = std::min(kPanel, columns - p * kPanel);
          float* to = c + i * stride + p * kPanel;
          if (high == kTileRows && wide == kPanel) {
            tile(deep, left, block + p * kPanel * deep, to, stride, onto);
            continue;
          }
          tile(deep, left, block + p * kPanel * deep, edge, kPanel, false);
          for (std::int64_t r = 0; r < high; ++r) {
            for (std::int64_t j = 0; j < wide; ++j) {
              float& at = to[r * stride + j];
              at = onto ? at + edge[r * kPanel + j] : edge[r * kPanel + j];
            }
          }
        }
      }
    }
  }
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
