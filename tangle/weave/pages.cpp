#include "pages.h"

#include <algorithm>
#include <stdexcept>

#include "cache.h"
#include "files.h"
#include "html.h"

namespace weave {
namespace {

std::string need(const std::string& path) {
  std::optional<std::string> bytes = tangle::read_file(path);
  if (!bytes) throw std::runtime_error(path + ": cannot be read");
  return std::move(*bytes);
}

std::string version_of(const std::string& path) {
  constexpr std::size_t length = 8;
  return sha256(need(path)).substr(0, length);
}

}  // namespace

std::size_t minutes(const Page& page) {
  constexpr std::size_t words_a_minute = 220, lines_a_minute = 40;
  return std::max<std::size_t>(1, page.words / words_a_minute + page.code_lines / lines_a_minute);
}

Pages::Pages(const Book& book, const Stores& stores, const Settings& settings)
    : book_(book),
      stores_(stores),
      settings_(settings),
      frame_(need(settings.templates + "/page.html")),
      home_(need(settings.templates + "/home.html")),
      style_version_(version_of(settings.templates + "/style.css")),
      script_version_(version_of(settings.templates + "/site.js")),
      figures_version_(version_of(settings.templates + "/figures.js")) {}

std::string Pages::chapter_link(std::string_view from, const Chapter& chapter) const {
  return "<a href=\"" + relative(from, chapter.page()) + "\">" + escaped(chapter.title) + "</a>";
}

std::string Pages::tree(std::string_view path, const Chapter* current, const std::vector<Heading>* headings) const {
  std::string out = "<ul>";
  const auto page = [&](std::string_view to, std::string_view words) {
    out += "<li><a href=\"" + relative(path, to) + "\"" + (path == to ? " aria-current=\"page\"" : "") + ">" +
           std::string(words) + "</a></li>";
  };
  for (const Part& part : book_.parts) {
    const bool open = current != nullptr && &book_.parts[current->part] == &part;
    out += "<li class=\"part\"><a href=\"" + relative(path, "contents.html#" + part.id) + "\">" + escaped(part.title) +
           "</a>";
    if (open) {
      out += "<ol>";
      for (const std::uint32_t c : part.chapters) {
        const Chapter& chapter = book_.chapters[c];
        const bool here = &chapter == current;
        out += "<li><a href=\"" + relative(path, chapter.page()) + "\"" + (here ? " aria-current=\"page\"" : "") +
               "><span>" + chapter.number + "</span> " + escaped(chapter.title) + "</a>";
        if (here && headings != nullptr) {
          out += "<ul class=\"sections\">";
          for (const Heading& heading : *headings)
            if (heading.level == 2) out += "<li><a href=\"#" + heading.id + "\">" + heading.html + "</a></li>";
          out += "</ul>";
        }
        out += "</li>";
      }
      out += "</ol>";
    }
    out += "</li>";
  }
  out += "</ul><ul class=\"back\">";
  page("contents.html", "Contents");
  page("roadmap.html", "Roadmap");
  page("glossary.html", "Glossary");
  page("facts/index.html", "Facts");
  page("benches.html", "Measurements");
  page("chunks.html", "Chunks");
  page("files.html", "Files");
  page("identifiers.html", "Identifiers");
  page("api/index.html", "API");
  page("bibliography.html", "Bibliography");
  page("errata.html", "Errata");
  page("cite.html", "How to cite");
  return out + "</ul>";
}

std::string Pages::framed(std::string_view path, std::string_view title, std::string_view description,
                          std::string_view main, const Chapter* current, const Page* page) const {
  const std::string name(path);
  std::string canonical, report, figures;
  if (page != nullptr && page->live)
    figures = "<script defer src=\"" + relative(path, "") + "assets/figures.js?" + figures_version_ + "\"></script>";
  if (!settings_.base_url.empty())
    canonical = "<link rel=\"canonical\" href=\"" + escaped(settings_.base_url + name) + "\">";
  if (!settings_.issues.empty())
    report = "<a href=\"" + escaped(settings_.issues) + "?title=" + slug(title) + "&amp;body=page%20" + escaped(name) +
             "%2C%20commit%20" + settings_.commit + "\">Report a problem</a>";
  else report = "<span>Found a mistake? Say the page and commit <code>" + settings_.commit + "</code>.</span>";
  return filled(frame_, {{"title", escaped(title)},
                         {"book", escaped(book_.title)},
                         {"description", escaped(description)},
                         {"root", relative(path, "")},
                         {"home", relative(path, "index.html")},
                         {"style", style_version_},
                         {"script", script_version_},
                         {"canonical", canonical},
                         {"figures", figures},
                         {"kind", current != nullptr ? "chapter" : slug(path.substr(0, path.find_first_of("/.")))},
                         {"tree", tree(path, current, page != nullptr ? &page->headings : nullptr)},
                         {"main", std::string(main)},
                         {"report", report}});
}

std::string Pages::head(const Chapter& chapter, const Page& page) const {
  const std::string path = chapter.page();
  const Part& part = book_.parts[chapter.part];
  std::string out = "<header class=\"head\"><p class=\"kicker\"><a href=\"" +
                    relative(path, "contents.html#" + part.id) + "\">Part " + part.number + ", " + escaped(part.title) +
                    "</a></p><h1><span class=\"chapter-number\">" + chapter.number + "</span> " +
                    escaped(chapter.title) + "</h1>";
  out += "<p class=\"byline\">" + counted(minutes(page), "minute", "minutes") + " to read";
  if (const std::string_view difficulty = text(chapter.front, "difficulty"); !difficulty.empty())
    out += ", " + escaped(difficulty);
  if (page.code_lines > 0) out += ", " + counted(page.code_lines, "line", "lines") + " of code";
  if (!page.facts.empty()) out += ", " + counted(page.facts.size(), "claim", "claims");
  if (const std::string_view verified = text(chapter.front, "verified"); !verified.empty())
    out += "; claims verified through " + escaped(verified);
  out += "</p>";
  if (const json::array& questions = list(chapter.front, "questions"); !questions.empty()) {
    out += "<ul class=\"questions\" aria-label=\"Questions that this chapter answers\">";
    for (const json::value& each : questions) out += "<li>" + escaped(view(each.as_string())) + "</li>";
    out += "</ul>";
  }
  const auto row = [&](std::string_view key, std::string_view label) {
    std::string links;
    for (const json::value& each : list(chapter.front, key)) {
      const Chapter* other = each.is_string() ? book_.chapter(view(each.as_string())) : nullptr;
      if (other != nullptr) links += (links.empty() ? "" : " · ") + chapter_link(path, *other);
    }
    if (!links.empty()) out += "<dt>" + std::string(label) + "</dt><dd>" + links + "</dd>";
  };
  const std::size_t before = out.size();
  out += "<dl class=\"way\">";
  const std::size_t opened = out.size();
  row("prerequisites", "Builds on");
  row("unlocks", "Unlocks");
  if (out.size() == opened) out.resize(before);
  else out += "</dl>";
  return out + "</header>";
}

std::string Pages::turn(const Chapter& chapter) const {
  std::vector<const Chapter*> order;
  for (const Part& part : book_.parts)
    for (const std::uint32_t c : part.chapters) order.push_back(&book_.chapters[c]);
  const auto here = std::find(order.begin(), order.end(), &chapter);
  std::string out = "<nav class=\"turn\" aria-label=\"Previous and next chapter\">";
  if (here != order.begin() && here != order.end())
    out += "<a rel=\"prev\" href=\"" + relative(chapter.page(), (*std::prev(here))->page()) +
           "\"><span>Previous</span> " + escaped((*std::prev(here))->title) + "</a>";
  if (here != order.end() && std::next(here) != order.end())
    out += "<a rel=\"next\" href=\"" + relative(chapter.page(), (*std::next(here))->page()) + "\"><span>Next</span> " +
           escaped((*std::next(here))->title) + "</a>";
  return out + "</nav>";
}

std::string Pages::chapter(const Chapter& chapter, const Page& page, std::string_view body) const {
  std::string description;
  for (const json::value& each : list(chapter.front, "questions"))
    description += std::string(view(each.as_string())) + " ";
  const std::string main =
      "<article data-pagefind-body>" + head(chapter, page) + std::string(body) + "</article>" + turn(chapter);
  return framed(chapter.page(), chapter.title, description, main, &chapter, &page);
}

std::string Pages::contents(const std::vector<Page>& pages) const {
  std::string main = "<header class=\"head\"><h1>Contents</h1></header>";
  for (const Part& part : book_.parts) {
    main += "<section class=\"toc\"><h2 id=\"" + part.id + "\"><span>" + part.number + "</span> " +
            escaped(part.title) + "</h2><ol>";
    for (const std::uint32_t c : part.chapters) {
      const Chapter& chapter = book_.chapters[c];
      const json::array& questions = list(chapter.front, "questions");
      main += "<li><span class=\"n\">" + chapter.number + "</span><div>" + chapter_link("contents.html", chapter);
      if (!questions.empty()) main += "<p>" + escaped(view(questions[0].as_string())) + "</p>";
      main += "</div><span class=\"time\">" + std::to_string(minutes(pages[c])) + " min<br>" +
              escaped(text(chapter.front, "difficulty")) + "</span></li>";
    }
    main += "</ol></section>";
  }
  return framed("contents.html", "Contents", "The parts and chapters of the book.", main);
}

std::string Pages::home(const std::vector<Page>& pages) const {
  std::size_t lines = 0, tests = 0, words = 0;
  for (const Page& page : pages) lines += page.code_lines, words += page.words;
  for (const Chunk& chunk : book_.chunks) tests += chunk.role == "test" ? 1 : 0;
  std::string toc;
  for (const Part& part : book_.parts) {
    toc += "<section><h2><a href=\"contents.html#" + part.id + "\">" + escaped(part.title) + "</a></h2><ol>";
    for (const std::uint32_t c : part.chapters) toc += "<li>" + chapter_link("index.html", book_.chapters[c]) + "</li>";
    toc += "</ol></section>";
  }
  const Chapter& first = book_.chapters.at(book_.parts.at(0).chapters.at(0));
  constexpr std::size_t round = 1000;
  const std::string main = filled(home_, {{"first", first.page()},
                                          {"parts", toc},
                                          {"chapters", std::to_string(book_.chapters.size())},
                                          {"chunks", shown(static_cast<double>(book_.chunks.size()))},
                                          {"lines", shown(static_cast<double>(lines / round * round))},
                                          {"tests", shown(static_cast<double>(tests))},
                                          {"words", shown(static_cast<double>(words / round * round))},
                                          {"facts", shown(static_cast<double>(stores_.facts.size()))}});
  return framed("index.html", book_.title, "A book on large language models that is also the program it describes.",
                main);
}

}  // namespace weave
