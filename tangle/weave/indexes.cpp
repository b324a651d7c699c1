#include <algorithm>
#include <cctype>

#include "api.h"
#include "bench.h"
#include "claims.h"
#include "files.h"
#include "html.h"
#include "pages.h"

namespace weave {
namespace {

std::string link(std::string_view from, std::string_view to, std::string_view words) {
  return "<a href=\"" + escaped(relative(from, to)) + "\">" + escaped(words) + "</a>";
}

std::string heading(std::string_view title, std::string_view lead) {
  return "<header class=\"head\"><h1>" + escaped(title) + "</h1><p class=\"byline\">" + std::string(lead) +
         "</p></header>";
}

std::string chunks_page(const Pages& pages, const Book& book) {
  const std::string path = "chunks.html";
  std::string main = heading("Chunks", counted(book.chunks.size(), "named piece of code", "named pieces of code") +
                                           ", by chapter. Every title is also the comment above the code.");
  for (const Chapter& chapter : book.chapters) {
    std::string items;
    for (const Chunk& chunk : book.chunks) {
      if (chunk.parts.empty() || &book.chapters[chunk.parts[0].chapter] != &chapter) continue;
      items += "<li>" + link(path, place_of(book, chunk, 0), book.title_of(chunk));
      if (chunk.role != "code") items += " <span class=\"role\">" + escaped(chunk.role) + "</span>";
      items += " <code>" + escaped(chunk.id) + "</code></li>";
    }
    if (!items.empty())
      main += "<h2 id=\"" + slug(chapter.name) + "\">" + chapter.number + " " + escaped(chapter.title) +
              "</h2><ul class=\"index\">" + items + "</ul>";
  }
  return pages.framed(path, "Chunks", "Index of chunks.", main);
}

std::string files_page(const Pages& pages, const Book& book) {
  const std::string path = "files.html";
  std::map<std::string, std::vector<const Output*>> folders;
  std::size_t count = 0;
  for (const Output& output : book.outputs) {
    if (output.kind == "list" || output.kind == "expected") continue;
    const std::size_t slash = output.path.rfind('/');
    folders[output.path.substr(0, slash == std::string::npos ? 0 : slash)].push_back(&output);
    ++count;
  }
  std::string main = heading("Files", counted(count, "file", "files") +
                                          " that the chapters tangle into, as <code>generated/</code> holds them. Each "
                                          "line leads back to its chapter.");
  for (auto& [folder, files] : folders) {
    std::sort(files.begin(), files.end(), [](const Output* a, const Output* b) { return a->path < b->path; });
    main += "<h2 id=\"" + slug(folder) + "\"><code>" + escaped(folder) + "/</code></h2><ul class=\"index files\">";
    for (const Output* file : files)
      main += "<li>" + link(path, page_of_file(file->path), file->path.substr(folder.empty() ? 0 : folder.size() + 1)) +
              "</li>";
    main += "</ul>";
  }
  return pages.framed(path, "Files", "Index of files.", main);
}

std::string names_page(const Pages& pages, const Book& book, const Names& names, const CodeWriter& code,
                       const Api& api) {
  const std::string path = "identifiers.html";
  std::map<std::string, std::vector<const Name*>> letters;
  std::size_t count = 0;
  for (const auto& [simple, name] : names.all()) {
    if (name.chunk == Fence::none) continue;
    const char initial = static_cast<char>(std::toupper(static_cast<unsigned char>(simple[0])));
    letters[std::string(1, initial)].push_back(&name);
    ++count;
  }
  std::string main = heading("Identifiers", counted(count, "name", "names") +
                                                " that the program declares, with the chunks that use them. What a "
                                                "name is leads to the API's page about it.");
  main += "<div data-pagefind-body><p class=\"letters\" data-pagefind-ignore>";
  for (const auto& [letter, all] : letters) main += "<a href=\"#letter-" + letter + "\">" + letter + "</a> ";
  main += "</p>";
  for (const auto& [letter, all] : letters) {
    main += "<h2 id=\"letter-" + letter + "\">" + letter + "</h2><ul class=\"index names\">";
    for (const Name* name : all) {
      std::string_view shown = name->qualified;
      if (shown.starts_with("rose::")) shown.remove_prefix(6);
      main += "<li><a href=\"" + escaped(relative(path, place_of(book, book.chunks[name->chunk], name->part))) +
              "\"><code>" + escaped(shown) + "</code></a> ";
      const std::string_view place = api.declared(name->output, name->line, simple_of(*name));
      main += place.empty()
                  ? "<span class=\"role\">" + name->kind + "</span>"
                  : "<a class=\"role\" href=\"" + escaped(relative(path, place)) + "\">" + name->kind + "</a>";
      const auto used = code.uses().find(name->qualified);
      if (used != code.uses().end()) {
        std::set<std::uint32_t> where;
        for (const std::uint32_t chunk : used->second) where.insert(book.chunks[chunk].parts[0].chapter);
        main += " <small>used in ";
        bool first = true;
        for (const std::uint32_t chapter : where) {
          const auto in_chapter = [&](std::uint32_t chunk) { return book.chunks[chunk].parts[0].chapter == chapter; };
          const std::uint32_t chunk = *std::find_if(used->second.begin(), used->second.end(), in_chapter);
          main +=
              (first ? "" : ", ") + link(path, place_of(book, book.chunks[chunk], 0), book.chapters[chapter].number);
          first = false;
        }
        main += "</small>";
      }
      main += "</li>";
    }
    main += "</ul>";
  }
  return pages.framed(path, "Identifiers", "Index of identifiers.", main + "</div>");
}

std::string glossary_page(const Pages& pages, const Book& book, const Stores& stores) {
  const std::string path = "glossary.html";
  std::vector<const Term*> terms;
  for (const auto& [id, term] : stores.terms) terms.push_back(&term);
  std::string main =
      heading("Glossary", counted(terms.size(), "term", "terms") + " of the field, as this book uses them.") +
      "<dl class=\"glossary\" data-pagefind-body>";
  for (const Term* term : terms) {
    main += "<dt id=\"" + term->id + "\">" + escaped(term->term) + "</dt><dd>" + escaped(term->definition);
    if (const Chapter* chapter = book.chapter(term->chapter))
      main += " " + link(path, chapter->page(), chapter->number + " " + chapter->title);
    main += "</dd>";
  }
  return pages.framed(path, "Glossary", "Terms of the field.", main + "</dl>");
}

std::string fact_item(const Fact& fact, std::string_view path, const Book& book, const std::vector<Page>& chapters) {
  const std::string id(fact.get("id"));
  const std::string grade(fact.get("grade"));
  std::string out = "<li id=\"" + id + "\"><p><span class=\"grade " + grade + "\">" + grade + "</span> " +
                    escaped(fact.get("claim")) + "</p><p class=\"source\">" + fact_note(fact, path) + "</p>";
  std::string cited;
  for (std::size_t c = 0; c < chapters.size(); ++c)
    if (std::find(chapters[c].facts.begin(), chapters[c].facts.end(), id) != chapters[c].facts.end())
      cited += (cited.empty() ? "" : ", ") + link(path, book.chapters[c].page(), book.chapters[c].title);
  std::string from;
  for (const json::value& base : list(fact.fields, "from"))
    from += (from.empty() ? "" : ", ") + std::string("<code>") + escaped(view(base.as_string())) + "</code>";
  out += "<p class=\"source\">";
  if (!from.empty()) out += "Follows from " + from + ". ";
  if (!cited.empty()) out += "Cited in " + cited + ". ";
  out += "Verified " + escaped(fact.get("verified")) + ". <code>" + id + "</code></p></li>";
  return out;
}

void add_facts(Site& site, const Pages& pages, const Book& book, const Stores& stores,
               const std::vector<Page>& chapters) {
  std::map<std::string, std::vector<const Fact*>> subjects;
  std::map<std::string, std::size_t> grades;
  std::vector<const Fact*> secondary;
  for (const auto& [id, fact] : stores.facts) {
    subjects[std::string(fact.get("subject"))].push_back(&fact);
    ++grades[std::string(fact.get("grade"))];
    if (fact.get("checked") == "secondary") secondary.push_back(&fact);
  }
  const std::string index = "facts/index.html";
  std::string main = heading("Facts", counted(stores.facts.size(), "statement", "statements") +
                                          " about the outside world, each with what it rests on.");
  main +=
      "<div class=\"table\" role=\"region\" aria-label=\"Facts by grade\" tabindex=\"0\"><table><thead><tr><th "
      "scope=\"col\">grade</th><th scope=\"col\">meaning</th><th scope=\"col\">facts</th></tr></thead><tbody>";
  for (const std::string_view grade : {"D", "C", "R", "I", "U"})
    main += "<tr><td><span class=\"grade " + std::string(grade) + "\">" + std::string(grade) + "</span></td><td>" +
            std::string(grade_word(grade)) + "</td><td>" + std::to_string(grades[std::string(grade)]) + "</td></tr>";
  main += "</tbody></table></div><h2 id=\"subjects\">By subject</h2><ul class=\"index\">";
  for (const auto& [subject, facts] : subjects) {
    const std::string path = page_of_subject(subject);
    main += "<li>" + link(index, path, subject) + " <small>" + std::to_string(facts.size()) + "</small></li>";
    std::string page =
        heading(subject, counted(facts.size(), "fact", "facts") + ". " + link(path, index, "All subjects"));
    page += "<ul class=\"facts\">";
    for (const Fact* fact : facts) page += fact_item(*fact, path, book, chapters);
    site[path] = pages.framed(path, subject, "Facts about " + subject + ".", page + "</ul>");
  }
  main += "</ul><h2 id=\"secondary\">Not yet verified at the source</h2>";
  if (secondary.empty()) main += "<p>None: every fact's passage was read in its primary source.</p>";
  else {
    main += "<ul class=\"facts\">";
    for (const Fact* fact : secondary) main += "<li>" + link(index, place_of_fact(*fact), fact->get("claim")) + "</li>";
    main += "</ul>";
  }
  std::map<std::string, std::vector<const Fact*>> sources;
  for (const auto& [id, fact] : stores.facts)
    if (!fact.get("source").empty())
      sources[std::string(fact.get("title").empty() ? fact.get("source") : fact.get("title"))].push_back(&fact);
  main += "<h2 id=\"sources\">By source</h2><dl class=\"glossary\">";
  for (const auto& [source, facts] : sources) {
    main += "<dt>" + source_html(facts[0]->get("source"), source) + "</dt><dd>";
    for (std::size_t i = 0; i < facts.size(); ++i)
      main += (i > 0 ? ", " : "") + link(index, place_of_fact(*facts[i]), facts[i]->get("id"));
    main += "</dd>";
  }
  site[index] = pages.framed(index, "Facts", "Index of facts.", main + "</dl>");
}

std::string benches_page(const Pages& pages, const Stores& stores) {
  const std::string path = "benches.html";
  std::size_t measured = 0;
  for (const auto& [id, bench] : stores.benches) measured += bench.records.empty() ? 0 : 1;
  std::string main = heading(
      "Measurements", counted(stores.benches.size(), "bench", "benches") + " of which " + std::to_string(measured) +
                          " have a record. Medians; lines show the smallest and the largest sample.");
  std::string pending;
  for (const auto& [id, bench] : stores.benches) {
    if (bench.records.empty()) {
      pending += "<li id=\"result-" + id + "\">" + id + "<small>" + what_of(bench) + "</small></li>";
      continue;
    }
    main += bench_table(stores, id, path);
    main += "<details class=\"record\"><summary>Record</summary><p><code>" +
            escaped(text(bench.records.back().fields, "command")) + "</code></p><p>" +
            escaped(text(bench.records.back().fields, "toolkit")) + ". " +
            escaped(text(bench.records.back().fields, "verdict")) + ". File: <code>" +
            escaped(bench.records.back().path) + "</code></p></details>";
  }
  if (!pending.empty()) main += "<h2 id=\"pending\">Not measured yet</h2><ul class=\"pending\">" + pending + "</ul>";
  return pages.framed(path, "Measurements", "Index of benches.", main);
}

}  // namespace

void add_indexes(Site& site, const Pages& pages, const Book& book, const Stores& stores, const Names& names,
                 const CodeWriter& code, const Api& api, const std::vector<Page>& chapters) {
  site["contents.html"] = pages.contents(chapters);
  site["chunks.html"] = chunks_page(pages, book);
  site["files.html"] = files_page(pages, book);
  site["identifiers.html"] = names_page(pages, book, names, code, api);
  site["glossary.html"] = glossary_page(pages, book, stores);
  site["benches.html"] = benches_page(pages, stores);
  const std::string roadmap = "roadmap.html";
  site[roadmap] = pages.framed(roadmap, "Roadmap", "What builds on what.",
                               heading("Roadmap",
                                       "An arrow leads from what is needed to what it makes possible. A chapter stands "
                                       "one step below the deepest of its prerequisites.") +
                                   roadmap_graph(book, roadmap));
  add_facts(site, pages, book, stores, chapters);
}

void add_bibliography(Site& site, const Pages& pages, const Book& book, const Stores& stores,
                      const std::vector<Page>& chapters, std::string_view formatted) {
  const std::string path = "bibliography.html";
  std::string main = heading("Bibliography", counted(stores.references.size(), "work", "works") +
                                                 ", with what each is good for and where it is cited.");
  constexpr std::string_view mark = "<div id=\"ref-";
  std::size_t at = formatted.find(mark);
  main += formatted.substr(0, std::min(at, formatted.size()));
  while (at != std::string_view::npos) {
    const std::size_t next = formatted.find(mark, at + 1);
    const std::string_view entry = formatted.substr(at, next == std::string_view::npos ? next : next - at);
    const std::size_t begin = at + mark.size();
    const std::string key(formatted.substr(begin, formatted.find('"', begin) - begin));
    const std::size_t close = entry.find("</div>");
    main += entry.substr(0, close);
    if (const auto found = stores.references.find(key);
        found != stores.references.end() && !text(found->second, "note").empty())
      main += "<p class=\"annotation\">" + escaped(text(found->second, "note")) + "</p>";
    std::string cited;
    for (std::size_t c = 0; c < chapters.size(); ++c)
      if (std::find(chapters[c].cited.begin(), chapters[c].cited.end(), key) != chapters[c].cited.end())
        cited +=
            (cited.empty() ? "" : ", ") + link(path, book.chapters[c].page() + "#ref-" + key, book.chapters[c].title);
    if (!cited.empty()) main += "<p class=\"source\">Cited in " + cited + "</p>";
    main += close == std::string_view::npos ? std::string_view{} : entry.substr(close);
    at = next;
  }
  site[path] = pages.framed(path, "Bibliography", "Annotated bibliography.", main);
}

}  // namespace weave
