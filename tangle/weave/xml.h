// Enough XML to read what Doxygen writes: elements, attributes, text; no namespaces, no external entities.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weave {

/// An element, or a piece of text (then `tag` is empty). Everything points into the text that was parsed, entities as they
/// were written there, which HTML reads the same way.
struct Xml {
  std::string_view tag, text;
  std::vector<std::pair<std::string_view, std::string_view>> attributes;
  std::vector<const Xml*> children;

  std::string_view attribute(std::string_view name) const;
  /// The first child with this tag, or null.
  const Xml* child(std::string_view name) const;
  /// The text of the first child with this tag, its own elements' text included.
  std::string text_of(std::string_view name) const;
  /// All text below.
  std::string all_text() const;
};

class XmlFile {
 public:
  /// Throws std::runtime_error where it is not XML.
  explicit XmlFile(std::string bytes);
  XmlFile(const XmlFile&) = delete;
  XmlFile& operator=(const XmlFile&) = delete;
  const Xml& root() const { return *elements_.front().children.at(0); }

 private:
  std::string bytes_;
  std::deque<Xml> elements_;  ///< the first is what holds the root
};

/// The five entities replaced by what they stand for.
std::string decoded(std::string_view text);

}  // namespace weave
