#include "pandoc.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "ast.h"
#include "files.h"
#include "process.h"

namespace weave {

namespace fs = std::filesystem;

std::string find_pandoc() {
  if (const char* named = std::getenv("PANDOC"); named != nullptr) return named;
  std::string cache;
  if (const char* rose = std::getenv("ROSE_CACHE"); rose != nullptr) cache = rose;
  else if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr) cache = std::string(xdg) + "/rosellm";
  else if (const char* home = std::getenv("HOME"); home != nullptr) cache = std::string(home) + "/.cache/rosellm";
  std::error_code none;
  for (const std::string_view venv : {"/venv-site", "/venv"})
    for (const fs::directory_entry& python : fs::directory_iterator(cache + std::string(venv) + "/lib", none))
      if (const fs::path program = python.path() / "site-packages/pypandoc/files/pandoc"; fs::exists(program, none))
        return program.string();
  return "pandoc";
}

Pandoc::Pandoc(const Cache& cache, std::string program, std::string reader)
    : cache_(cache), program_(std::move(program)), reader_(std::move(reader)) {
  std::error_code none;
  release_ = program_ + std::to_string(fs::exists(program_, none) ? fs::file_size(program_, none) : 0);
}

std::string Pandoc::run(std::string_view kind, const std::vector<std::string>& options, std::string_view input) const {
  std::string question = release_;
  for (const std::string& each : options) question += '\n' + each;
  const std::string key = sha256(question.append("\n\n").append(input));
  if (std::optional<std::string> known = cache_.find(kind, key)) return std::move(*known);
  cache_.keep("in", key, input);
  const std::string out = cache_.path("in", key + ".out");
  std::vector<std::string> command{program_};
  command.insert(command.end(), options.begin(), options.end());
  const Finished done = run_program(command, cache_.path("in", key), out);
  std::string answer = tangle::read_file(out).value_or("");
  fs::remove(out);
  fs::remove(cache_.path("in", key));
  if (done.status != 0) throw std::runtime_error("Pandoc failed (" + program_ + "):\n" + done.error);
  cache_.keep(kind, key, answer);
  return answer;
}

json::value Pandoc::read(std::string_view markdown) const {
  return json::parse(run("tree", {"-f", reader_, "-t", "json"}, markdown));
}

std::string Pandoc::html(const json::value& tree, const json::array& references) const {
  std::vector<std::string> options{"-f", "json", "-t", "html5", "--wrap=none", "--email-obfuscation=none"};
  if (!references.empty()) {
    const std::string text = json::serialize(references);
    const std::string key = sha256(text) + ".json";
    if (!cache_.find("references", key)) cache_.keep("references", key, text);
    options.insert(options.end(), {"--citeproc", "--bibliography=" + cache_.path("references", key), "-M",
                                   "link-citations=true", "-M", "lang=en-GB"});
  }
  return run("html", options, json::serialize(tree));
}

std::string Pandoc::bibliography(const json::array& references) const {
  json::array citations;
  for (const json::value& each : references)
    citations.push_back(json::object{{"citationId", text(each.as_object(), "id")},
                                     {"citationPrefix", json::array{}},
                                     {"citationSuffix", json::array{}},
                                     {"citationMode", json::object{{"t", "NormalCitation"}}},
                                     {"citationNoteNum", 0},
                                     {"citationHash", 0}});
  const json::value nocite =
      json::object{{"t", "MetaInlines"}, {"c", json::array{ast::node("Cite", json::array{citations, json::array{}})}}};
  const json::value tree = json::object{{"pandoc-api-version", json::array{1, 23, 1}},
                                        {"meta", json::object{{"nocite", nocite}}},
                                        {"blocks", json::array{}}};
  return references.empty() ? std::string() : html(tree, references);
}

}  // namespace weave
