// The text that the tool writes around chunks: test files and exercises.
#pragma once

#include <cstdint>
#include <vector>

#include "output.h"

namespace tangle {

/// A GoogleTest source with `chunks` in order, each inside its namespace.
void test_file(const Program& program, Output& output, const std::vector<std::uint32_t>& chunks);

}  // namespace tangle
