// Doxygen over the library's headers, kept by their content: headers that did not change are not read again.
#pragma once

#include <string>

#include "book.h"

namespace weave {

/// What Doxygen left in a folder: xml/, rosellm.tag, warnings.txt.
struct Documented {
  std::string folder;  ///< empty when the book has no headers
};

/// Whether an output is a header of the library.
bool is_public_header(const Output& output);

/// Runs Doxygen with `doxyfile` over the headers below `generated`, or finds what an earlier run made of the same ones below
/// `cache`. Throws std::runtime_error when it cannot be run.
Documented document(const Book& book, const std::string& generated, const std::string& doxyfile,
                    const std::string& cache);

/// Every warning becomes an error at the chapter's line. A member of a documented type may go without words of its own.
void report_warnings(const Documented& documented, const Book& book, tangle::Diagnostics& diagnostics);

}  // namespace weave
