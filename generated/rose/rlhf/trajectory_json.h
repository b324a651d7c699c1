// A trajectory as one line.

#pragma once

#include <string>
#include <string_view>

#include "rose/core/json.h"
#include "rose/rlhf/trajectory.h"

namespace rose::rlhf {

/// Everything but the columns: what both forms write as JSON. Turns have their lengths.
core::json::object header_json(const Trajectory& t);
/// The inverse; columns stay empty, turns are placed one after the other.
Trajectory header_from_json(const core::json::object& object, std::string_view where);

/// The whole trajectory on one line, without the line's end.
std::string to_json_line(const Trajectory& t);
/// Throws core::Error (corrupt) naming `where`; the result is validated.
Trajectory from_json_line(std::string_view line, std::string_view where);

}  // namespace rose::rlhf
