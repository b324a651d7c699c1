// Finds the fenced code blocks of a Markdown text, and nothing else of it.
//
// The rules are CommonMark's as far as they decide what is a fence: backtick and tilde runs, closing
// runs at least as long, list items, block quotes, indented code and raw HTML blocks.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tangle {

enum class FenceEnd : std::uint8_t {
  closed,     ///< by its own closing run
  container,  ///< by the end of the list item or quote around it
  file,       ///< not at all
};

/// A fence as offsets into the text.
struct FenceLines {
  std::uint32_t line = 0;        ///< line number of the opening, from 1
  std::uint32_t open = 0;        ///< first fence character
  std::uint32_t info_begin = 0;  ///< what follows the run, without surrounding blanks
  std::uint32_t info_end = 0;
  std::uint32_t body_begin = 0;  ///< first byte after the opening line
  std::uint32_t body_end = 0;    ///< first byte of the closing line
  std::uint32_t end = 0;         ///< past the closing line
  std::uint32_t body_lines = 0;
  std::uint32_t indent = 0;  ///< columns before the fence characters
  FenceEnd how = FenceEnd::file;
  bool quoted = false;        ///< inside a block quote
  bool after_marker = false;  ///< on the line of its list marker
  bool broken = false;        ///< looks like a chunk, but a backtick in its info makes it inline code
};

/// All fences from `offset` on, which is the beginning of line number `line`.
std::vector<FenceLines> scan_fences(std::string_view text, std::uint32_t offset = 0, std::uint32_t line = 1);

}  // namespace tangle
