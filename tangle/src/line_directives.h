// `#line` directives for the build that shows chapter lines in debuggers, profilers and coverage.
#pragma once

#include <string>
#include <vector>

#include "output.h"

namespace tangle {

/// Rewrites C++ and CUDA outputs so that each line says which chapter line it is. `folder` is where they
/// will lie; paths in directives are absolute. The outputs' source maps no longer apply afterwards.
void add_line_directives(const Program& program, const std::string& folder, std::vector<Output>& outputs);

}  // namespace tangle
