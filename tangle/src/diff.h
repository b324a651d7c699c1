// Line differences: the shortest edit script (Myers 1986), as hunks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tangle {

/// Lines [old_begin, old_end) of one text became lines [new_begin, new_end) of the other; from 0.
struct Hunk {
  std::uint32_t old_begin = 0, old_end = 0;
  std::uint32_t new_begin = 0, new_end = 0;

  bool operator==(const Hunk&) const = default;
};

using Lines = std::vector<std::string_view>;

/// The lines of a text, each with its line feed; the last may lack one.
Lines lines_of(std::string_view text);

/// What turns `before` into `after`, in order, with unchanged lines between any two hunks.
std::vector<Hunk> diff(const Lines& before, const Lines& after);

/// Both changes of one ancestor in one text. Empty-handed, with the ancestor's line (from 0) in `conflict`, when the
/// two changed the same or touching lines in different ways.
bool merge(const Lines& ancestor, const Lines& ours, const Lines& theirs, std::string& merged, std::uint32_t& conflict);

}  // namespace tangle
