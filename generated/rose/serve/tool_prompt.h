// Write tools as text.

#pragma once

#include "rose/core/json.h"

namespace rose::serve {

/// Messages that a template without tools can write: their schemas in the system message, calls and results as text.
core::json::array with_tools_as_text(const core::json::array& messages,
                                     const core::json::array& tools);

/// The schema of a call of one of these tools (or of the one with this name): {"name": …, "arguments": …}.
core::json::object call_schema(const core::json::array& tools, std::string_view name);

}  // namespace rose::serve
