// Code on a page: cards of chunks, whole files.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "book.h"
#include "names.h"
#include "uses.h"

namespace weave {

class Api;

/// The page that shows an output as a whole.
std::string page_of_file(std::string_view path);

/// The page of a file that is no output but that a page links to.
std::string page_of_source(std::string_view path);

/// Where a part of a chunk stands, from the site's root.
std::string place_of(const Book& book, const Chunk& chunk, std::uint32_t part);

class CodeWriter {
 public:
  CodeWriter(const Book& book, const Names& names, const Uses& meanings, const Api& api)
      : book_(book), names_(names), meanings_(meanings), api_(api) {}

  /// A fence of a chapter, as a card when it is a chunk.
  std::string card(const Chapter& chapter, const Fence& fence);

  /// A listing without a name.
  std::string listing(std::string_view body, std::string_view language) const;

  /// The lines of a file with their numbers, each leading to its chapter.
  std::string file(const Output& output, std::string_view bytes, std::string_view page) const;
  std::string plain_file(std::string_view path, std::string_view bytes) const;

  /// Chunks that use a name (by its qualified form), collected while cards were written.
  const std::map<std::string, std::set<std::uint32_t>, std::less<>>& uses() const { return uses_; }

  /// Adds what another has collected.
  void take(const CodeWriter& other) {
    for (const auto& [name, chunks] : other.uses_) uses_[name].insert(chunks.begin(), chunks.end());
  }

 private:
  struct Links {
    std::string_view page;              ///< null view: no links
    std::uint32_t chunk = Fence::none;  ///< whose own names are not linked
    const Chapter* chapter = nullptr;   ///< which the code stands in; otherwise it is an output's
    std::uint32_t output = 0;
    std::uint32_t line = 0;  ///< of the chapter or the output, on which the code begins
    std::map<std::string, std::set<std::uint32_t>, std::less<>>* uses = nullptr;
    std::set<std::string, std::less<>>* seen =
        nullptr;  ///< places that this code links already; null: each piece for itself
  };

  std::string_view documented(const Links& links, std::uint32_t line, std::string_view word) const;
  const Name* meant(const Links& links, std::uint32_t line, std::uint32_t offset, std::string_view word, char before,
                    char after) const;
  void highlighted(std::string& out, std::string_view code, std::string_view language, const Links* links) const;
  void body(std::string& out, const Chapter& chapter, const Fence& fence, const std::string& page, const Links* links,
            int depth) const;
  void reference(std::string& out, const Reference& reference, std::string_view line, const std::string& page,
                 int depth) const;
  std::string caption(const Fence& fence, const std::string& page) const;
  std::string footer(const Fence& fence, const std::string& page) const;
  std::string changes(const Fence& fence) const;

  const Book& book_;
  const Names& names_;
  const Uses& meanings_;
  const Api& api_;
  std::map<std::string, std::set<std::uint32_t>, std::less<>> uses_;
};

}  // namespace weave
