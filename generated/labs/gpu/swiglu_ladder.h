// Name the rungs, and say what each does.

#pragma once

#include <cstdint>

#include "labs/gpu/rung.h"

namespace rose::labs {

/// out = silu(gate) * up over `count` bf16 numbers in device memory, silu(gate) rounded to bf16; `between` has room for as many.
using Swiglu = void(const void* gate, const void* up, void* between, void* out, std::int64_t count,
                    gpu::Stream stream);

Rungs<Swiglu> swiglu_ladder();

/// Throws core::Error (invalid_argument) for a count that is negative or no multiple of `unit`.
void check_swiglu(std::int64_t count, std::int64_t unit);

/// Bytes that a rung moves for each number, from device memory and to it.
inline constexpr double swiglu_apart_bytes = 10, swiglu_fused_bytes = 6;

}  // namespace rose::labs
