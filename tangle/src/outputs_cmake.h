// generated/outputs.cmake: the outputs by kind, so that CMake runs again only when the set changes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "output.h"

namespace tangle {

std::string outputs_cmake(const Program& program, const std::vector<Output>& outputs);

/// The paths of all files that an earlier `outputs.cmake` lists; those that could not be outputs are left out.
std::vector<std::string> listed_files(std::string_view outputs_cmake);

}  // namespace tangle
