// What a reader of a header takes for documentation, told to Doxygen.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace weave {

/// A header with the same lines, in which comments that stand above a declaration or behind it open as Doxygen wants them,
/// and in which nothing that a comment says is a command or a tag: our comments are plain words with `code` in backticks.
/// Comments in the bodies of functions, and headings that an empty line separates from the code, stay as they are. What a
/// namespace declares without a comment shares that of the line above, and without one there gets `title(line)`.
std::string for_doxygen(std::string_view header, const std::function<std::string(std::size_t)>& title);

}  // namespace weave
