// What the tool knows about languages: comments, families, file endings.
#pragma once

#include <string_view>

namespace tangle {

/// Text that begins a line comment, or empty when the language has none.
std::string_view line_comment(std::string_view language);

/// A canonical name for languages that may be woven into each other: c, cpp, cuda → "cpp".
std::string_view family(std::string_view language);

bool is_cpp(std::string_view language);  ///< C++ or CUDA
bool is_cuda(std::string_view language);

/// The family that a file's ending asks for, or empty when any may be written there.
std::string_view family_of_path(std::string_view path);

}  // namespace tangle
