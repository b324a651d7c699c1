// The book's grammar on Pandoc's syntax tree: labels, references, citations, claims, terms, checks, code, mathematics.
#pragma once

#include <string>
#include <vector>

#include "book.h"
#include "code.h"
#include "labels.h"
#include "math.h"
#include "stores.h"

namespace weave {

struct Heading {
  int level = 2;
  std::string id, html;
};

/// A chapter after the filter.
struct Page {
  json::value tree;
  std::vector<Heading> headings;
  std::vector<std::string> cited;  ///< keys, without repeats
  std::vector<std::string> facts;  ///< ids, without repeats
  std::size_t words = 0;           ///< of prose
  std::size_t code_lines = 0;
  bool live = false;  ///< it has a figure that needs figures.js
};

struct Workshop {
  const Book& book;
  const Stores& stores;
  const Labels& labels;
  const Math& math;
  Linker& linker;
  CodeWriter& code;
  tangle::Diagnostics& diagnostics;
  bool plain = false;  ///< for EPUB: no side notes, no expansion
};

/// Asks for every formula of a tree.
void collect_math(const json::value& tree, Math& math);

Page filter(const Workshop& workshop, const Chapter& chapter, json::value tree);

}  // namespace weave
