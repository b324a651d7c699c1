// What can be referred to on the chapters' pages, with its number; and where links lead.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "book.h"
#include "stores.h"

namespace weave {

struct Label {
  enum class Kind { heading, equation, figure, table, check, exercise, chunk } kind = Kind::heading;
  std::string number;  ///< "1.9.3", or empty
};

/// "eq:id" and the like when a raw block is `<!-- eq:id -->`, or empty.
std::string_view label_in_comment(std::string_view raw);

/// The anchor of a check or an exercise: its id, unless a chunk has the same one.
std::string anchor_of_question(const Book& book, std::string_view id);

class Labels {
 public:
  /// Collects the anchors of a chapter from its syntax tree.
  void read(const Book& book, const Chapter& chapter, const json::value& tree, tangle::Diagnostics& diagnostics);

  const Label* find(const Chapter& chapter, std::string_view anchor) const;
  std::vector<std::string_view> anchors(const Chapter& chapter) const;

 private:
  std::map<std::string, std::map<std::string, Label, std::less<>>, std::less<>> by_chapter_;
};

/// The first place in the chapter that holds `words`, for messages about what Pandoc gives without its place.
tangle::Span find_in(const Chapter& chapter, std::string_view words, std::string_view otherwise = {});

/// Where a link of a chapter leads.
struct Target {
  std::string href;  ///< as the page writes it
  const Label* label = nullptr;
  const Chapter* chapter = nullptr;
  bool external = false;
  std::string error;
};

class Linker {
 public:
  Linker(const Book& book, const Labels& labels) : book_(book), labels_(labels) {}

  Target resolve(const Chapter& from, std::string_view url);

  /// Files outside the book and its outputs that pages link to; they are shown too.
  const std::set<std::string>& files() const { return files_; }

  /// Images, which are copied.
  void copy_file(const std::string& path) { copies_.insert(path); }
  const std::set<std::string>& copies() const { return copies_; }

  /// Adds what another has met.
  void take(const Linker& other) {
    files_.insert(other.files_.begin(), other.files_.end());
    copies_.insert(other.copies_.begin(), other.copies_.end());
  }

 private:
  Target chapter_target(const Chapter& from, const Chapter& to, std::string_view fragment) const;

  const Book& book_;
  const Labels& labels_;
  std::set<std::string> files_, copies_;
};

}  // namespace weave
