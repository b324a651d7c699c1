// What stands around the text of a page, and the pages that are made from the stores.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "book.h"
#include "code.h"
#include "filter.h"
#include "stores.h"

namespace weave {

/// The whole site in memory: path to bytes.
using Site = std::map<std::string, std::string, std::less<>>;

struct Settings {
  std::string templates = "tangle/site";
  std::string base_url;  ///< where the site will stand, with a slash at the end; empty: anywhere
  std::string issues;    ///< where problems are reported; empty: no such link
  std::string commit;
};

class Pages {
 public:
  Pages(const Book& book, const Stores& stores, const Settings& settings);

  /// A page in its frame. `current` is the chapter it shows, or null.
  std::string framed(std::string_view path, std::string_view title, std::string_view description, std::string_view main,
                     const Chapter* current = nullptr, const Page* page = nullptr) const;

  std::string chapter(const Chapter& chapter, const Page& page, std::string_view body) const;
  std::string home(const std::vector<Page>& pages) const;
  std::string contents(const std::vector<Page>& pages) const;

 private:
  std::string tree(std::string_view path, const Chapter* current, const std::vector<Heading>* headings) const;
  std::string head(const Chapter& chapter, const Page& page) const;
  std::string turn(const Chapter& chapter) const;
  std::string chapter_link(std::string_view from, const Chapter& chapter) const;

  const Book& book_;
  const Stores& stores_;
  const Settings& settings_;
  std::string frame_, home_, style_version_, script_version_, figures_version_;
};

/// Where everything stands: contents, indexes of chunks, files and names, glossary, facts, benches, roadmap.
void add_indexes(Site& site, const Pages& pages, const Book& book, const Stores& stores, const Names& names,
                 const CodeWriter& code, const Api& api, const std::vector<Page>& chapters);

/// The bibliography with its annotations, from what citeproc made of all references.
void add_bibliography(Site& site, const Pages& pages, const Book& book, const Stores& stores,
                      const std::vector<Page>& chapters, std::string_view formatted);

/// What was wrong in the book, and how to cite it.
void add_about(Site& site, const Pages& pages, const Book& book, const Stores& stores, const Settings& settings);

/// The roadmap's graph: prerequisites as arrows, one row a depth.
std::string roadmap_graph(const Book& book, std::string_view page);

/// A cycle in the prerequisites, or a chapter that does not exist, is an error.
void check_prerequisites(const Book& book, tangle::Diagnostics& diagnostics);

/// Minutes that reading takes: prose at 220 words a minute, code at 40 lines.
std::size_t minutes(const Page& page);

}  // namespace weave
