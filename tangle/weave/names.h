// Where the program's names are declared: a scan of the tangled files that follows braces and knows the shape of C++
// declarations. It does not understand C++; a name that it is not sure of is not linked.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "book.h"

namespace weave {

struct Name {
  std::string qualified;  ///< "rose::kernels::KvView::offset"
  std::string kind;       ///< type, alias, concept, function, member, constant, macro
  std::uint32_t output = 0, line = 0;
  std::uint32_t chunk = Fence::none, part = 0;  ///< the chunk that declares it
};

/// "offset" of "rose::kernels::KvView::offset".
std::string_view simple_of(const Name& name);

class Names {
 public:
  /// Scans the sources among the book's outputs, headers first.
  void read(const Book& book, const std::string& folder);

  /// What `word` means when nothing but the characters around it is known; null when that is not certain.
  const Name* find(std::string_view word, char before, char after) const;

  /// What a line of an output declares under a name; null when it declares nothing.
  const Name* declared(std::uint32_t output, std::uint32_t line, std::string_view word) const;

  const std::multimap<std::string, Name, std::less<>>& all() const { return names_; }

 private:
  std::multimap<std::string, Name, std::less<>> names_;  ///< by unqualified name
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<Name>>
      by_place_;  ///< by output and line, overloads too
};

/// The declarations in one file.
std::vector<Name> declarations(std::string_view text);

/// The run of an output that holds a line.
const Run* run_at(const Output& output, std::uint32_t line);

}  // namespace weave
