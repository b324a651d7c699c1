#include "xml.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace weave {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/// The attributes of a start tag, behind its name.
std::vector<std::pair<std::string_view, std::string_view>> attributes_of(std::string_view tag) {
  std::vector<std::pair<std::string_view, std::string_view>> found;
  while (true) {
    while (!tag.empty() && is_space(tag.front())) tag.remove_prefix(1);
    const std::size_t equals = tag.find('=');
    if (equals == std::string_view::npos || equals + 1 >= tag.size()) return found;
    const std::size_t end = tag.find(tag[equals + 1], equals + 2);
    if (end == std::string_view::npos) return found;
    found.emplace_back(tag.substr(0, equals), tag.substr(equals + 2, end - equals - 2));
    tag.remove_prefix(end + 1);
  }
}

}  // namespace

std::string_view Xml::attribute(std::string_view name) const {
  for (const auto& [key, value] : attributes)
    if (key == name) return value;
  return {};
}

const Xml* Xml::child(std::string_view name) const {
  const auto found = std::find_if(children.begin(), children.end(), [&](const Xml* each) { return each->tag == name; });
  return found == children.end() ? nullptr : *found;
}

std::string Xml::all_text() const {
  std::string out(text);
  for (const Xml* each : children) out += each->all_text();
  return out;
}

std::string Xml::text_of(std::string_view name) const {
  const Xml* found = child(name);
  return found == nullptr ? std::string() : found->all_text();
}

XmlFile::XmlFile(std::string bytes) : bytes_(std::move(bytes)) {
  std::string_view rest = bytes_;
  std::vector<Xml*> open{&elements_.emplace_back()};
  const auto wrong = [&] {
    return std::runtime_error("not XML at byte " + std::to_string(bytes_.size() - rest.size()));
  };
  while (!rest.empty()) {
    const std::size_t tag = std::min(rest.find('<'), rest.size());
    if (tag > 0) {
      Xml& words = elements_.emplace_back();
      words.text = rest.substr(0, tag);
      open.back()->children.push_back(&words);
      rest.remove_prefix(tag);
      continue;
    }
    const bool comment = rest.starts_with("<!--");
    const std::size_t end = comment ? rest.find("-->") : rest.find('>');
    if (end == std::string_view::npos) throw wrong();
    const std::string_view inside = rest.substr(1, end - 1);
    if (!comment && inside.starts_with('/')) {
      if (open.size() < 2 || open.back()->tag != inside.substr(1)) throw wrong();
      open.pop_back();
    } else if (!comment && !inside.starts_with('?') && !inside.starts_with('!')) {
      const bool closed = inside.ends_with('/');
      const std::string_view words = inside.substr(0, inside.size() - (closed ? 1 : 0));
      const std::size_t name = std::min(words.find_first_of(" \n\t\r"), words.size());
      Xml& made = elements_.emplace_back();
      made.tag = words.substr(0, name);
      made.attributes = attributes_of(words.substr(name));
      open.back()->children.push_back(&made);
      if (!closed) open.push_back(&made);
    }
    rest.remove_prefix(end + (comment ? 3 : 1));
  }
  std::erase_if(elements_.front().children, [](const Xml* each) { return each->tag.empty(); });
  if (open.size() != 1 || elements_.front().children.size() != 1) throw wrong();
}

std::string decoded(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 5> entities{
      {{"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}, {"&quot;", '"'}, {"&apos;", '\''}}};
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto known = std::find_if(entities.begin(), entities.end(),
                                    [&](const auto& each) { return text.substr(i).starts_with(each.first); });
    if (known != entities.end()) {
      out += known->second;
      i += known->first.size();
    } else {
      out += text[i++];
    }
  }
  return out;
}

}  // namespace weave
