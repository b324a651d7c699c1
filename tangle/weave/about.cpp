// Two pages about the book itself: what was wrong in it, and how to cite it.
#include <algorithm>

#include "html.h"
#include "pages.h"

namespace weave {
namespace {

std::string heading(std::string_view title, std::string_view lead) {
  return "<header class=\"head\"><h1>" + escaped(title) + "</h1><p class=\"byline\">" + std::string(lead) +
         "</p></header>";
}

std::string errata_page(const Pages& pages, const Book& book, const Stores& stores, const Settings& settings) {
  const std::string path = "errata.html";
  std::string main =
      heading("Errata", "Mistakes that readers met and that are corrected in this edition, newest first.");
  std::vector<const json::object*> entries;
  for (const json::object& entry : stores.errata) entries.push_back(&entry);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const json::object* a, const json::object* b) { return text(*a, "id") > text(*b, "id"); });
  if (entries.empty()) main += "<p>None is known: nothing has been corrected since the first edition.</p>";
  else main += "<ul class=\"facts\">";
  constexpr std::size_t length_of_date = 10;
  for (const json::object* entry : entries) {
    const Chapter* chapter = book.chapter(text(*entry, "chapter"));
    main += "<li id=\"" + escaped(text(*entry, "id")) + "\"><p>" +
            escaped(text(*entry, "id").substr(0, length_of_date)) + ", ";
    main += chapter == nullptr ? escaped(text(*entry, "chapter"))
                               : "<a href=\"" + relative(path, chapter->page()) + "\">" + chapter->number + " " +
                                     escaped(chapter->title) + "</a>";
    main += "</p><p>" + escaped(text(*entry, "was")) + " <b>Now:</b> " + escaped(text(*entry, "now")) +
            "</p><p class=\"source\">Corrected in <code>" + escaped(text(*entry, "commit")) + "</code>";
    if (!text(*entry, "reported").empty()) main += ", reported by " + escaped(text(*entry, "reported"));
    main += "</p></li>";
  }
  if (!entries.empty()) main += "</ul>";
  main += "<h2 id=\"report\">Report a mistake</h2><p>";
  main += settings.issues.empty() ? "Tell the authors"
                                  : "<a href=\"" + escaped(settings.issues) + "\">Tell the authors</a>";
  main +=
      " the page, the commit at its foot, and what you expected instead. A number that is wrong deserves its source; a "
      "program "
      "that is wrong, the command and what it printed. What is confirmed is corrected in the chapter with a test that "
      "would "
      "have caught it, and entered here, with your name if you like.</p>";
  return pages.framed(path, "Errata", "What was wrong in this book, and how to report a mistake.", main);
}

std::string cite_page(const Pages& pages, const Stores& stores, const Settings& settings) {
  const std::string path = "cite.html";
  const json::object& given = stores.citation;
  std::string authors;
  for (const json::value& each : list(given, "authors"))
    authors += (authors.empty() ? "" : " and ") + std::string(text(each.as_object(), "name"));
  const std::string title(text(given, "title")), version(text(given, "version")), date(text(given, "date-released"));
  constexpr std::size_t length_of_year = 4;
  const std::string year = date.substr(0, length_of_year);
  const std::string commit = settings.commit.empty() ? std::string() : "commit " + settings.commit;
  std::string main = heading(
      "How to cite", "This is version " + escaped(version) + (commit.empty() ? "" : ", " + escaped(commit)) + ".");
  main += "<h2 id=\"book\">The book and its program</h2><p>" + escaped(authors) + " (" + escaped(year) + "). <em>" +
          escaped(title) + "</em> (version " + escaped(version) + (commit.empty() ? "" : ", " + escaped(commit)) + ").";
  if (!settings.base_url.empty()) main += " " + escaped(settings.base_url);
  main += "</p><div class=\"listing\"><pre class=\"code\" tabindex=\"0\"><code>@software{rosellm,\n  author  = {{" +
          escaped(authors) + "}},\n  title   = {{" + escaped(title) + "}},\n  version = {" + escaped(version) +
          "},\n  year    = {" + escaped(year) + "},\n";
  if (!settings.base_url.empty()) main += "  url     = {" + escaped(settings.base_url) + "},\n";
  main += "  note    = {" + escaped(commit) + "}\n}</code></pre></div>";
  main +=
      "<p>The file <code>CITATION.cff</code> in the repository says the same to programs.</p><h2 id=\"part\">A part of "
      "it</h2><p>For a "
      "chapter, give its number and title as well. Numbers move when chapters are added: the commit makes them "
      "definite.</p><p>For a "
      "<em>fact</em>, cite the source that the fact names, not this book; <a href=\"facts/index.html\">the index of "
      "facts</a> has the "
      "locator of the passage. For a <em>measurement</em>, say the bench, the machine and the date, as "
      "<a href=\"benches.html\">its record</a> does: a speed without a machine means nothing.</p><h2 "
      "id=\"licence\">Licence</h2><p>Prose "
      "and figures may be used under CC BY 4.0, code under the MIT licence.</p>";
  return pages.framed(path, "How to cite", "How to cite the book, a chapter, a fact or a measurement.", main);
}

}  // namespace

void add_about(Site& site, const Pages& pages, const Book& book, const Stores& stores, const Settings& settings) {
  site["errata.html"] = errata_page(pages, book, stores, settings);
  site["cite.html"] = cite_page(pages, stores, settings);
}

}  // namespace weave
