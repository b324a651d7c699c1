// book.json: the model as a public, versioned format (documented in chapter 0/04).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace tangle {

constexpr int book_json_version = 1;

/// How Pandoc reads a chapter: the one place that says it. `~` and `^` stay themselves, as on the forge.
constexpr std::string_view pandoc_reader = "commonmark_x-subscript-superscript";

std::string book_json(const Program& program, const std::vector<Output>& outputs);

/// The source maps alone: for each output, its runs.
std::string source_map_json(const Program& program, const std::vector<Output>& outputs);

}  // namespace tangle
