#include "html.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>
#include <vector>

namespace weave {

void escape_to(std::string& out, std::string_view words) {
  for (const char c : words) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
}

std::string escaped(std::string_view words) {
  std::string out;
  escape_to(out, words);
  return out;
}

std::string relative(std::string_view from, std::string_view to) {
  const std::string_view page = to.substr(0, to.find('#'));
  if (page == from)
    return to.size() > page.size() ? std::string(to.substr(page.size()))
                                   : std::string(page.substr(page.rfind('/') + 1));
  std::size_t shared = 0;  // length of the common folders
  for (std::size_t i = 0; i < std::min(from.size(), page.size()) && from[i] == page[i]; ++i)
    if (from[i] == '/') shared = i + 1;
  std::string out;
  for (const char c : from.substr(shared))
    if (c == '/') out += "../";
  return out.append(to.substr(shared));
}

std::string filled(std::string_view page, const std::map<std::string, std::string, std::less<>>& values) {
  std::string out;
  while (true) {
    const std::size_t open = page.find("{{");
    out += page.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = page.find("}}", open);
    const std::string_view name = page.substr(open + 2, close - open - 2);
    const auto found = values.find(name);
    if (found == values.end()) throw std::runtime_error("the template asks for '" + std::string(name) + "'");
    out += found->second;
    page.remove_prefix(close + 2);
  }
}

std::string counted(std::size_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

std::string slug(std::string_view words) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> spelled = {
      {{"τ", "tau"}, {"²", "2"}, {"³", "3"}}};
  std::string plain(words), out;
  for (const auto& [sign, name] : spelled) {
    for (std::size_t at = 0; (at = plain.find(sign, at)) != std::string::npos;) plain.replace(at, sign.size(), name);
  }
  for (const char c : plain) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (letter) out += c;
    else if (c >= 'A' && c <= 'Z') out += static_cast<char>(c - 'A' + 'a');
    else if (!out.empty() && out.back() != '-') out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

}  // namespace weave
