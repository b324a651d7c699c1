// Finds the chapter lines that an edit of an output belongs to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "output.h"

namespace tangle {

/// Bytes [begin, end) of a chapter become `text`.
struct Edit {
  std::uint32_t chapter = 0;
  std::uint32_t begin = 0, end = 0;
  std::string text;
  Span hunk;  ///< where it was asked for
};

/// To which side lines go that were inserted between two chunks.
enum class Seam { before, after };

/// Appends the edits of chapters that would turn the output into the wanted text; an error for each hunk that no
/// chapter can hold.
void place_edits(const Program& program, const Output& output, const Source& wanted, Seam seam,
                 Diagnostics& diagnostics, std::vector<Edit>& edits);

}  // namespace tangle
