// weave: renders the book as a site, from what `tangle book-json` says of it.
//
//   book.json ─▶ chapters ─ Pandoc ─▶ trees ─ labels, mathematics, filter ─▶ trees ─ Pandoc ─▶ pages ─▶ build/site
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <sstream>
#include <thread>

#include "api.h"
#include "ast.h"
#include "cache.h"
#include "code.h"
#include "doxygen.h"
#include "edition.h"
#include "files.h"
#include "filter.h"
#include "fonts.h"
#include "html.h"
#include "labels.h"
#include "math.h"
#include "names.h"
#include "pages.h"
#include "pandoc.h"
#include "process.h"
#include "publish.h"
#include "uses.h"

namespace weave {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string book_json = "-", out = "build/site", cache = "build/weave", generated = "generated",
              identifiers = "build/identifiers.json", python, pagefind;
  Settings settings;
  bool timings = false, one_page = false;
  unsigned jobs = std::max(1U, std::thread::hardware_concurrency());
};

class Clock {
 public:
  explicit Clock(bool shown) : shown_(shown) {}
  void lap(const char* what) {
    const auto now = std::chrono::steady_clock::now();
    if (shown_)
      std::fprintf(stderr, "weave: %-12s %6.0f ms\n", what,
                   std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
  }

 private:
  bool shown_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

std::string read_input(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::optional<std::string> bytes = tangle::read_file(path);
  if (!bytes) throw std::runtime_error(path + ": cannot be read");
  return std::move(*bytes);
}

json::array references_of(const Stores& stores, const std::vector<std::string>& keys) {
  json::array found;
  for (const std::string& key : keys) {
    const auto entry = stores.references.find(key);
    if (entry == stores.references.end()) continue;
    json::object csl = entry->second;
    csl.erase("note");  // the annotation is ours, not part of the reference
    found.push_back(std::move(csl));
  }
  return found;
}

bool failed(const tangle::Diagnostics& diagnostics) {
  std::cerr << diagnostics.rendered(tangle::MessageFormat::gcc);
  return diagnostics.failed();
}

void add_assets(Site& site, const std::string& templates) {
  for (const std::string_view name : {"style.css", "site.js", "figures.js", "icon.svg"})
    if (auto bytes = tangle::read_file(templates + "/" + std::string(name)))
      site["assets/" + std::string(name)] = std::move(*bytes);
}

void add_files(Site& site, const Options& options, const Pages& pages, const Book& book, const CodeWriter& code,
               const Api& api, const Linker& linker) {
  for (const Output& output : book.outputs) {
    if (output.kind == "list") continue;
    const std::string path = page_of_file(output.path);
    const std::string bytes = tangle::read_file(options.generated + "/" + output.path).value_or("");
    site[path] = pages.framed(path, output.path, "The file " + output.path,
                              "<header class=\"head\"><h1 class=\"path\">" + escaped(output.path) + "</h1>" +
                                  api.lead_to(output, path) + "</header>" + code.file(output, bytes, path));
  }
  for (const std::string& file : linker.files()) {
    const std::string path = page_of_source(file);
    site[path] = pages.framed(path, file, "The file " + file,
                              "<header class=\"head\"><h1 class=\"path\">" + escaped(file) + "</h1></header>" +
                                  code.plain_file(file, tangle::read_file(file).value_or("")));
  }
  for (const std::string& file : linker.copies())
    site["figures/" + fs::path(file).filename().string()] = tangle::read_file(file).value_or("");
}

/// Fonts cut down to the characters that the pages use, and the search index: other people's programs, run in the new
/// folder, side by side.
void finish(const Options& options, const Site& site, const std::string& folder) {
  in_parallel(2, 2, [&](std::size_t i) {
    if (i == 0) return add_fonts(site, folder, options.python, options.settings.templates + "/fonts.py", options.cache);
    if (options.pagefind.empty()) return;
    const Finished done = run_program(
        {options.pagefind, "--site", folder, "--quiet", "--glob", "{glossary,identifiers,*-*/*,appendix/*}.html"}, {},
        {});
    if (done.status != 0) throw std::runtime_error(options.pagefind + " failed:\n" + done.error);
  });
  // Pagefind brings its own interfaces, which the pages do not use.
  for (const std::string_view unused :
       {"component-ui.css", "component-ui.js", "modular-ui.css", "modular-ui.js", "ui.css", "ui.js", "highlight.js"})
    fs::remove(folder + "/pagefind/pagefind-" + std::string(unused));
}

int weave(const Options& options) {
  Clock clock(options.timings);
  tangle::Diagnostics diagnostics;
  Book book;
  read_book(book, read_input(options.book_json));
  const Cache cache(options.cache);
  const Pandoc pandoc(cache, find_pandoc(), book.reader);
  Stores stores;
  Names names;
  Uses meanings;
  std::optional<Api> api;
  tangle::Diagnostics of_stores, of_headers;
  std::future<void> beside = std::async(std::launch::async, [&] {
    read_stores(stores, of_stores);
    check_prerequisites(book, of_stores);
    names.read(book, options.generated);
    meanings = Uses(book, options.identifiers, options.generated);
    const Documented documented =
        document(book, options.generated, options.settings.templates + "/Doxyfile", options.cache);
    report_warnings(documented, book, of_headers);
    api.emplace(book, documented);
  });
  std::vector<json::value> trees(book.chapters.size());
  in_parallel(trees.size(), options.jobs,
              [&](std::size_t c) { trees[c] = pandoc.read(book.chapters[c].source->text); });
  beside.get();
  diagnostics.append(std::move(of_stores));
  if (failed(diagnostics)) return 1;
  clock.lap("read");

  Labels labels;
  Math math(cache, options.settings.templates + "/katex.mjs");
  for (std::size_t c = 0; c < trees.size(); ++c) {
    labels.read(book, book.chapters[c], trees[c].at("blocks"), diagnostics);
    collect_math(trees[c].at("blocks"), math);
  }
  math.render();
  clock.lap("mathematics");

  Linker linker(book, labels);
  CodeWriter code(book, names, meanings, *api);
  std::vector<Linker> linkers(trees.size(), linker);
  std::vector<CodeWriter> writers(trees.size(), code);
  std::vector<tangle::Diagnostics> said(trees.size());
  std::vector<Page> pages(trees.size());
  in_parallel(trees.size(), options.jobs, [&](std::size_t c) {
    const Workshop workshop{book, stores, labels, math, linkers[c], writers[c], said[c], false};
    pages[c] = filter(workshop, book.chapters[c], std::move(trees[c]));
  });
  for (std::size_t c = 0; c < pages.size(); ++c) {
    linker.take(linkers[c]);
    code.take(writers[c]);
    diagnostics.append(std::move(said[c]));
  }
  diagnostics.append(std::move(of_headers));
  if (failed(diagnostics)) return 1;
  clock.lap("filter");

  const Pages frames(book, stores, options.settings);
  Site files;
  std::future<void> made = std::async(std::launch::async, [&] {
    add_files(files, options, frames, book, code, *api, linker);
    api->add_pages(files, frames);
    add_indexes(files, frames, book, stores, names, code, *api, pages);
    add_about(files, frames, book, stores, options.settings);
    add_assets(files, options.settings.templates);
  });
  std::vector<std::string> bodies(pages.size());
  std::string works;
  in_parallel(pages.size() + 1, options.jobs, [&](std::size_t c) {
    if (c < pages.size()) {
      bodies[c] = pandoc.html(pages[c].tree, references_of(stores, pages[c].cited));
      return;
    }
    std::vector<std::string> all;
    for (const auto& [key, entry] : stores.references) all.push_back(key);
    works = pandoc.bibliography(references_of(stores, all));
  });
  clock.lap("write");

  made.get();
  Site site = std::move(files);
  for (std::size_t c = 0; c < pages.size(); ++c) {
    const Chapter& chapter = book.chapters[c];
    site[chapter.page()] = frames.chapter(chapter, pages[c], bodies[c]);
    site[chapter.name + ".md"] = chapter.source->text;
  }
  site["index.html"] = frames.home(pages);
  if (options.one_page) site["book.html"] = one_page(book, bodies, "assets/style.css");
  add_bibliography(site, frames, book, stores, pages, works);
  if (!options.settings.base_url.empty()) site["sitemap.xml"] = sitemap(site, options.settings.base_url);
  site["llms.txt"] = llms_txt(book, options.settings.base_url);
  clock.lap("assemble");

  publish(site, options.out, [&](const std::string& folder) { finish(options, site, folder); });
  clock.lap("publish");
  std::printf("weave: %zu chapters, %zu pages, %zu formulas in %s\n", book.chapters.size(), site.size(), math.count(),
              options.out.c_str());
  return 0;
}

}  // namespace
}  // namespace weave

int main(int argc, char** argv) {
  weave::Options options;
  CLI::App app("Renders the book as a site. Run it in the root of the checkout.");
  app.add_option("book.json", options.book_json, "what `tangle book-json` prints; - is standard input");
  app.add_option("--out", options.out, "the folder of the site")->capture_default_str();
  app.add_option("--cache", options.cache, "where results are kept")->capture_default_str();
  app.add_option("--generated", options.generated, "where the chapters were tangled to")->capture_default_str();
  app.add_option("--identifiers", options.identifiers, "what clang says that names mean, from scripts/identifiers.py")
      ->capture_default_str();
  app.add_option("--site", options.settings.templates, "templates, styles and scripts")->capture_default_str();
  app.add_option("--base-url", options.settings.base_url,
                 "where the site will stand; without it, it works in any folder");
  app.add_option("--issues", options.settings.issues, "where readers report problems");
  app.add_option("--commit", options.settings.commit, "the commit that the pages name");
  app.add_option("--python", options.python, "a Python with fonttools, to cut fonts down");
  app.add_option("--pagefind", options.pagefind, "Pagefind's program; without it there is no search");
  app.add_option("-j,--jobs", options.jobs, "threads")->capture_default_str();
  app.add_flag("--one-page", options.one_page, "also write book.html, which is for printing and for an EPUB");
  app.add_flag("--timings", options.timings, "say how long each step takes");
  CLI11_PARSE(app, argc, argv);
  try {
    return weave::weave(options);
  } catch (const std::exception& error) {
    std::cerr << "weave: error: " << error.what() << "\n";
    return 1;
  }
}
