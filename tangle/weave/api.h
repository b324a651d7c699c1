// The API's pages: what Doxygen read in the headers, set as pages of this site, one a header, and linked with the chapters.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "book.h"
#include "doxygen.h"
#include "pages.h"
#include "xml.h"

namespace weave {

/// The page that documents a header.
std::string page_of_header(std::string_view path);

class Api {
 public:
  Api(const Book& book, const Documented& documented);

  /// Where on the site a name is documented that a line of an output declares, or that a line of a chapter declares outside
  /// of types; empty when it is nowhere.
  std::string_view declared(std::uint32_t output, std::uint32_t line, std::string_view name) const;
  std::string_view declared_in(const Chapter& chapter, std::uint32_t line, std::string_view name) const;

  /// A line for the page of a whole file that leads to what is said about its names; empty when nothing is.
  std::string lead_to(const Output& output, std::string_view page) const;

  /// One page a header, an index, and the tag file, by which other projects' Doxygen links to these pages.
  void add_pages(Site& site, const Pages& pages) const;

 private:
  struct Entity {
    const Xml* node = nullptr;
    std::string kind, name, scope, anchor;
    std::uint32_t output = 0, line = 0;
    std::vector<Entity> members;  ///< of a type; of an enumeration its values
  };
  struct Mark {
    std::string name, place;
  };
  using Marks = std::unordered_map<std::uint64_t, std::vector<Mark>>;

  void read(const Xml& compound);
  void member(const Xml& node, std::string_view scope, Entity* owner);
  bool located(Entity& entity) const;
  void register_place(const Entity& entity, std::string_view id, bool member);
  static std::string_view look_up(const Marks& marks, std::uint64_t key, std::string_view name);

  std::string header_page(const Pages& pages, std::uint32_t output, const std::vector<Entity>& entities) const;
  std::string index_page(const Pages& pages) const;
  std::string entity_html(const Entity& entity, std::string_view page, bool headed) const;
  std::string origin(const Entity& entity, std::string_view page) const;
  std::string line_link(const Entity& entity, std::string_view page) const;
  std::string declaration(const Entity& entity, std::string_view page) const;
  std::string words(const Xml& node, std::string_view page) const;
  std::string paragraphs(const Xml& node, std::string_view page) const;
  std::string description(const Xml& node, std::string_view page) const;
  std::string tag_file() const;

  const Book& book_;
  std::string folder_;
  std::deque<XmlFile> files_;
  std::unordered_map<std::uint32_t, std::vector<Entity>> headers_;
  std::unordered_map<std::string, std::string> places_;  ///< by Doxygen's id: page and anchor
  Marks by_output_, by_chapter_;
};

}  // namespace weave
