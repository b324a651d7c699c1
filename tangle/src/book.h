// The book: parts and chapters in reading order, each with its document.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "diagnostics.h"
#include "document.h"
#include "source.h"

namespace tangle {

struct PartOfBook {
  std::string id;  ///< folder name, "1-foundations"
  std::string title;
  std::vector<std::string> chapters;
};

/// Owns every source, so that documents, programs and messages may point into it.
struct Book {
  std::string folder;         ///< as given, without a trailing slash
  bool has_contents = false;  ///< there is a book.yaml, so front matter is required
  std::string title;
  std::vector<PartOfBook> parts;
  std::deque<std::string> names;  ///< chapter names, one for each document
  std::deque<Source> sources;
  std::vector<Document> chapters;
};

/// A chapter's bytes before they are read. `tangle stitch` makes a book from edited ones.
struct ChapterText {
  std::string name;  ///< "1-foundations/05-tokenization"
  std::string path;  ///< as messages show it
  std::string bytes;
};

/// Reads `folder`: by its book.yaml, or, where there is none, its `.md` files in name order.
Book read_book(const std::string& folder, Diagnostics& diagnostics);

/// The same book with other bytes in its chapters (same names, same order).
Book with_texts(const Book& book, std::vector<ChapterText> texts, Diagnostics& diagnostics);

/// Checks each chapter's front matter against the book.
void check_front_matter(const Book& book, Diagnostics& diagnostics);

/// Index of the chapter that `name` means (full name, or its last part), or -1 with an error.
int find_chapter(const Book& book, std::string_view name, Diagnostics& diagnostics);

}  // namespace tangle
