// Forty questions that ship with the program.

#pragma once

#include <string_view>

namespace rose::trainer {

/// The set "endings": JSON lines as parse_choices reads them.
std::string_view endings_lines();

}  // namespace rose::trainer
