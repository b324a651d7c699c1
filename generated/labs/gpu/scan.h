// Name the rungs, and say what each does.

#pragma once

#include <cstddef>
#include <cstdint>

#include "labs/gpu/rung.h"

namespace rose::labs {

/// out[i] = in[0] + … + in[i - 1] modulo 2^32, for 0 <= i < count. Device pointers, aligned to 16 bytes; `out` may be `in`.
/// `workspace` has scan_workspace(count) bytes.
using Scan = void(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                  gpu::Workspace workspace, gpu::Stream stream);
Rungs<Scan> scan_ladder();
Scan* scan_library();  ///< CUB's

/// out = the numbers of `in` that are not zero, in their order, and *kept = how many. Device pointers, `in` aligned to 16 bytes, `out`
/// with room for all of them; they do not overlap. `workspace` has compact_workspace(count) bytes.
using Compact = void(const std::uint32_t* in, std::int64_t count, std::uint32_t* out,
                     std::uint32_t* kept, gpu::Workspace workspace, gpu::Stream stream);
Rungs<Compact> compact_ladder();
Compact* compact_library();

/// Enough for any rung and the library. Throws core::Error (invalid_argument) unless 0 <= count < 2^31.
std::size_t scan_workspace(std::int64_t count);
std::size_t compact_workspace(std::int64_t count);

}  // namespace rose::labs
