// Turn queries and keys by their position, on a GPU.

#pragma once

#include <cstdint>

#include "rose/kernels/gpu/stream.h"

namespace rose::kernels::gpu {

/// Which elements of a head form a pair: i and i + D/2, or 2i and 2i + 1.
enum class RopePairing { half, interleaved };

/// cos and sin of positions[t] * inv_freq[i], fp32 [T, D/2] each, times `scale`; positions and inv_freq are in device memory.
void rope_table(const std::int32_t* positions, std::int64_t tokens, const float* inv_freq,
                std::int64_t pairs, float scale, float* cos, float* sin, Stream stream);

/// Turns every head of x [T, H * D] in place, f32, bf16 or f16, each result rounded once; x may be part of a wider matrix. `inverse`
/// turns back, which is what the backward pass needs.
void rope(const Matrix& x, std::int64_t head_dim, const float* cos, const float* sin,
          RopePairing pairing, bool inverse, Stream stream);

}  // namespace rose::kernels::gpu
