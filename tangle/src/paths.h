// Where outputs may lie: portable relative paths that cannot leave the output folder or meet each other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "diagnostics.h"
#include "output.h"

namespace tangle {

/// Why `path` cannot name an output, or an empty string.
std::string path_objection(std::string_view path);

/// Refuses bad paths, two outputs with one path, paths that differ in case alone, a file where a folder is.
/// `outputs` are sorted by path.
void check_paths(const std::vector<Output>& outputs, Diagnostics& diagnostics);

}  // namespace tangle
