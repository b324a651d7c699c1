// The text that the tool writes around chunks: test files and exercises.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "output.h"

namespace tangle {

/// A GoogleTest source with `chunks` in order, each inside its namespace, or `otherwise` where it names none.
void test_file(const Program& program, Output& output, const std::vector<std::uint32_t>& chunks,
               std::string_view otherwise = {});

}  // namespace tangle
