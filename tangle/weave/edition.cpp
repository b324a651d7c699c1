#include "edition.h"

#include <algorithm>

#include "html.h"

namespace weave {
namespace {

/// "1-foundations/09-attention" as a part of an id.
std::string prefix_of(std::string_view chapter) {
  std::string out = "c-" + std::string(chapter);
  std::replace(out.begin(), out.end(), '/', '-');
  return out;
}

/// Where a link of a chapter's page leads on the one page; links to pages that are not in it become plain text marks.
std::string within(const Book& book, const Chapter& from, std::string_view href) {
  if (href.starts_with("#")) return "#" + prefix_of(from.name) + "-" + std::string(href.substr(1));
  if (href.find("://") != std::string_view::npos) return std::string(href);
  const std::size_t hash = href.find('#');
  const std::string_view page = href.substr(0, hash);
  for (const Chapter& chapter : book.chapters) {
    if (relative(from.page(), chapter.page()) != page) continue;
    return "#" + prefix_of(chapter.name) +
           (hash == std::string_view::npos ? "" : "-" + std::string(href.substr(hash + 1)));
  }
  return {};
}

std::string moved(const Book& book, const Chapter& chapter, std::string_view body) {
  std::string out;
  while (!body.empty()) {
    const std::size_t id = body.find(" id=\""), href = body.find(" href=\""), label = body.find(" for=\"");
    const std::size_t at = std::min({id, href, label});
    out += body.substr(0, at);
    if (at == std::string_view::npos) break;
    const std::size_t begin = body.find('"', at) + 1, end = body.find('"', begin);
    const std::string_view value = body.substr(begin, end - begin);
    if (at == href) {
      const std::string to = within(book, chapter, value);
      if (!to.empty()) out += " href=\"" + to + "\"";
    } else {
      out += std::string(body.substr(at, begin - at)) + prefix_of(chapter.name) + "-" + std::string(value) + "\"";
    }
    body.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace

std::string one_page(const Book& book, const std::vector<std::string>& bodies, std::string_view style) {
  std::string out =
      "<!doctype html><html lang=\"en\" data-theme=\"light\"><head><meta charset=\"utf-8\"><title>" +
      escaped(book.title) + "</title><link rel=\"stylesheet\" href=\"" + std::string(style) +
      "\"></head><body class=\"one-page\"><main><header class=\"cover\"><h1>" + escaped(book.title) +
      "</h1><p class=\"lead\">A book that is also a program</p></header><nav class=\"toc-plain\"><h2>Contents</h2>";
  for (const Part& part : book.parts) {
    out += "<h3>" + part.number + " " + escaped(part.title) + "</h3><ol>";
    for (const std::uint32_t c : part.chapters)
      out += "<li><a href=\"#" + prefix_of(book.chapters[c].name) + "\">" + book.chapters[c].number + " " +
             escaped(book.chapters[c].title) + "</a></li>";
    out += "</ol>";
  }
  out += "</nav>";
  for (const Part& part : book.parts)
    for (const std::uint32_t c : part.chapters) {
      const Chapter& chapter = book.chapters[c];
      out += "<article id=\"" + prefix_of(chapter.name) + "\"><header class=\"head\"><p class=\"kicker\">Part " +
             part.number + ", " + escaped(part.title) + "</p><h1><span class=\"chapter-number\">" + chapter.number +
             "</span> " + escaped(chapter.title) + "</h1></header>" + moved(book, chapter, bodies[c]) + "</article>";
    }
  return out + "</main></body></html>";
}

}  // namespace weave
