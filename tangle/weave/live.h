// Figures that come alive: their recorded state as a table, and for the script of the page as data.
#pragma once

#include <string>
#include <string_view>

#include "json.h"

namespace weave {

/// The element of a figure of a kind. `state` is the recorded file: "recorded" (a date), "by" (what made it), "columns" and
/// "rows" for readers without scripts, "state" for figures.js. A cell is text, or a list of tokens, each a pair of its text
/// and its id. Throws std::runtime_error when one of these is missing.
std::string live_figure(std::string_view kind, const json::value& state);

}  // namespace weave
