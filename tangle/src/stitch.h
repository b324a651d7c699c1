// Takes edits of outputs back into the chapters, exactly or not at all.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "book.h"
#include "diagnostics.h"
#include "output.h"

namespace tangle {

/// An output that somebody wants to read otherwise.
struct Edited {
  std::uint32_t output = 0;  ///< index into the outputs
  Source* source = nullptr;  ///< the wanted text, and the path that messages show
};

/// The chapters' new texts, one for each chapter of the book, such that producing them again gives every edited output
/// its wanted text and every other output the text it has. Empty, with errors at the refused hunks, when there are none.
std::vector<ChapterText> stitch(const Program& program, const std::vector<Output>& outputs,
                                const std::vector<Edited>& edited, Diagnostics& diagnostics);

}  // namespace tangle
