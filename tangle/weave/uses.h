// Which declaration a name in the code means, as clang resolved it: scripts/identifiers.py asks libclang and leaves
// build/identifiers.json. Only files that are as they were then count; for the others the weaver's own reading stays.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "book.h"

namespace weave {

/// Where a name is declared. `output` is Fence::none for what is not of this book.
struct Meaning {
  std::string name;
  std::uint32_t offset = 0;  ///< of the use, from the first character of its line that is no space
  std::uint32_t output = Fence::none, line = 0;
};

class Uses {
 public:
  Uses() = default;
  Uses(const Book& book, const std::string& index, const std::string& generated);

  /// What `word` means at a place in a line of an output, or of a chapter; null when clang said nothing of it.
  const Meaning* in_output(std::uint32_t output, std::uint32_t line, std::uint32_t offset, std::string_view word) const;
  const Meaning* in_chapter(std::uint32_t chapter, std::uint32_t line, std::uint32_t offset,
                            std::string_view word) const;

 private:
  using Lines = std::unordered_map<std::uint64_t, std::vector<Meaning>>;
  static const Meaning* look_up(const Lines& lines, std::uint32_t where, std::uint32_t line, std::uint32_t offset,
                                std::string_view word);

  Lines by_output_, by_chapter_;
};

}  // namespace weave
