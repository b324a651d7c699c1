// Writes one output: expands chunks at their place of use and records where each line came from.
#pragma once

#include <string>
#include <string_view>

#include "output.h"

namespace tangle {

class Expander {
 public:
  Expander(const Program& program, Output& output) : program_(program), output_(output) {}

  /// Lines that the tool makes. `text` ends with a line feed.
  void frame(std::string_view text);
  void blank_line();  ///< unless the text is empty or ends with one already

  /// A chunk with its title as the comment above it, which opens the file where the chunk does.
  void chunk(std::uint32_t chunk, const std::string& indent = {}, bool opens_file = false);
  /// The lines of a fence that is no chunk, such as an expected output.
  void listing(const Fence& fence);

 private:
  void part(std::uint32_t chunk, std::uint32_t index, const std::string& indent, bool opens_file);
  bool title(std::uint32_t chunk, std::uint32_t index, const std::string& indent);
  void copy(const Run& from, std::string_view lines, const std::string& indent, std::uint32_t strip);
  void add(Run run, std::uint32_t lines);

  const Program& program_;
  Output& output_;
  std::uint32_t next_line_ = 1;
};

}  // namespace tangle
