// Count what the operations of a layer compute and move.

#pragma once

#include "rose/kernels/gpu/roofline.h"

/// Sizes in elements, `bytes` for each; sums accumulate in registers, so nothing in between is moved.
namespace rose::labs {

using kernels::gpu::Cost;

/// Causal attention of t tokens over themselves: h query heads, g key heads, of size d.
inline Cost prefill_cost(double t, double h, double g, double d, double bytes) {
  return {.flops = 2 * h * d * t * (t + 1), .bytes = bytes * 2 * t * d * (h + g)};
}

/// One new token in each of b sequences, which sees t keys.
inline Cost decode_cost(double b, double t, double h, double g, double d, double bytes) {
  return {.flops = 4 * b * h * d * t, .bytes = bytes * 2 * b * d * (g * t + h)};
}

/// RMSNorm of rows of a width.
inline Cost norm_cost(double rows, double width, double bytes) {
  return {.flops = 4 * rows * width, .bytes = bytes * (2 * rows * width + width)};
}

}  // namespace rose::labs
