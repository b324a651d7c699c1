#include "citations.h"

#include "ast.h"

namespace weave {
namespace {

bool starts_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// A text that may hold a citation, from inline `first` up to the closing bracket in inline `last`.
struct Bracket {
  std::size_t first = 0, last = 0;
  std::string before, inside, after;
};

std::string_view words_of(const json::value& inline_node) {
  const std::string_view tag = ast::tag(inline_node);
  if (tag == "Str") return view(ast::content(inline_node).as_string());
  return tag == "Space" || tag == "SoftBreak" ? std::string_view(" ") : std::string_view{};
}

bool bracket_at(const json::array& inlines, std::size_t first, Bracket& found) {
  const std::string_view opening = words_of(inlines[first]);
  for (std::size_t open = opening.find('['); open != std::string_view::npos; open = opening.find('[', open + 1)) {
    std::string inside;
    std::size_t i = first, from = open + 1;
    for (; i < inlines.size(); ++i, from = 0) {
      const std::string_view words = words_of(inlines[i]);
      if (words.empty()) break;
      const std::size_t close = words.find(']', from);
      inside += words.substr(from, close == std::string_view::npos ? close : close - from);
      if (close == std::string_view::npos) continue;
      const std::size_t at = inside.find('@');
      const bool cites = at != std::string::npos && at + 1 < inside.size() && starts_key(inside[at + 1]) &&
                         (at == 0 || inside[at - 1] == '-' || inside[at - 1] == ' ');
      if (!cites) break;
      found = {first, i, std::string(opening.substr(0, open)), inside, std::string(words.substr(close + 1))};
      return true;
    }
  }
  return false;
}

json::array as_inlines(std::string_view words) {
  json::array made;
  while (!words.empty()) {
    const std::size_t end = words.find(' ');
    if (end > 0) made.push_back(ast::str(words.substr(0, end)));
    if (end == std::string_view::npos) break;
    made.push_back(ast::space());
    words.remove_prefix(end + 1);
  }
  return made;
}

json::value citation(std::string_view item, std::vector<std::string>& keys) {
  const std::size_t at = item.find('@');
  const bool suppress = at > 0 && item[at - 1] == '-';
  std::string_view prefix = item.substr(0, at - (suppress ? 1 : 0));
  while (prefix.starts_with(' ')) prefix.remove_prefix(1);
  std::size_t end = at + 1;
  while (end < item.size() &&
         (starts_key(item[end]) || std::string_view(":.#$%&-+?<>~/").find(item[end]) != std::string_view::npos))
    ++end;
  while (end > at + 1 && (item[end - 1] == '.' || item[end - 1] == ':')) --end;
  const std::string_view key = item.substr(at + 1, end - at - 1);
  keys.emplace_back(key);
  return json::object{{"citationId", key},
                      {"citationPrefix", as_inlines(prefix)},
                      {"citationSuffix", as_inlines(item.substr(end))},
                      {"citationMode", json::object{{"t", suppress ? "SuppressAuthor" : "NormalCitation"}}},
                      {"citationNoteNum", 0},
                      {"citationHash", 0}};
}

}  // namespace

void make_citations(json::array& inlines, std::vector<std::string>& keys) {
  json::array made;
  for (std::size_t i = 0; i < inlines.size(); ++i) {
    Bracket found;
    if (words_of(inlines[i]).find('[') == std::string_view::npos || !bracket_at(inlines, i, found)) {
      made.push_back(std::move(inlines[i]));
      continue;
    }
    if (!found.before.empty()) made.push_back(ast::str(found.before));
    json::array citations;
    std::string_view rest = found.inside;
    while (!rest.empty()) {
      const std::size_t end = rest.find(';');
      const std::string_view item = rest.substr(0, end);
      if (item.find('@') != std::string_view::npos) citations.push_back(citation(item, keys));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    made.push_back(ast::node("Cite", json::array{std::move(citations), json::array{ast::str(found.inside)}}));
    // What follows the bracket may open another one.
    i = found.last;
    if (!found.after.empty()) {
      inlines[i] = ast::str(found.after);
      --i;
    }
  }
  inlines = std::move(made);
}

}  // namespace weave
