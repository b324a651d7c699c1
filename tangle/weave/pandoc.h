// Pandoc as reader and writer, its answers cached by the content of the question.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cache.h"
#include "json.h"

namespace weave {

class Pandoc {
 public:
  Pandoc(const Cache& cache, std::string program, std::string reader);

  /// A chapter's syntax tree. Throws std::runtime_error with what Pandoc says.
  json::value read(std::string_view markdown) const;

  /// A tree as HTML without a frame. `references` are the CSL entries that it cites.
  std::string html(const json::value& tree, const json::array& references) const;

  /// A list of works, formatted.
  std::string bibliography(const json::array& references) const;

  const std::string& program() const { return program_; }

 private:
  std::string run(std::string_view kind, const std::vector<std::string>& options, std::string_view input) const;

  const Cache& cache_;
  std::string program_, reader_, release_;
};

/// The program that `PANDOC`, the set-up's environment or the path names.
std::string find_pandoc();

}  // namespace weave
