// A trajectory as bytes.

#pragma once

#include <string>
#include <string_view>

#include "rose/rlhf/trajectory.h"

namespace rose::rlhf {

/// Little-endian: u32 length and the header's JSON, u32 tokens, i32 ids; then of the action tokens
/// in order: u8 trained, i64 version, f32 raw, f32 behaviour, u32 size of the support and its i32 ids.
std::string to_bytes(const Trajectory& t);
/// Throws core::Error (corrupt) naming `where`; the result is validated.
Trajectory from_bytes(std::string_view bytes, std::string_view where);

}  // namespace rose::rlhf
