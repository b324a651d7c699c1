#include "publish.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "html.h"

namespace weave {

namespace fs = std::filesystem;

void publish(const Site& site, const std::string& folder, const std::function<void(const std::string&)>& finish) {
  const fs::path target(folder), fresh(folder + ".new"), old(folder + ".old");
  fs::remove_all(fresh);
  for (const auto& [path, bytes] : site) {
    const fs::path file = fresh / path;
    fs::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error(file.string() + ": cannot be written");
  }
  finish(fresh.string());
  fs::remove_all(old);
  if (fs::exists(target)) fs::rename(target, old);
  fs::rename(fresh, target);
  fs::remove_all(old);
}

std::string sitemap(const Site& site, const std::string& base_url) {
  std::string out =
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n";
  for (const auto& [path, bytes] : site)
    if (path.ends_with(".html") && !path.starts_with("code/") && !path.starts_with("source/"))
      out += "<url><loc>" + escaped(base_url + path) + "</loc></url>\n";
  return out + "</urlset>\n";
}

std::string llms_txt(const Book& book, const std::string& base_url) {
  std::string out = "# " + book.title +
                    "\n\n> A book on large language models that is also the program it describes: C++20 and CUDA in "
                    "Markdown chapters. "
                    "Each page is HTML; the Markdown of a chapter stands beside it with the ending .md.\n";
  for (const Part& part : book.parts) {
    out += "\n## " + part.title + "\n\n";
    for (const std::uint32_t c : part.chapters) {
      const Chapter& chapter = book.chapters[c];
      out += "- [" + chapter.title + "](" + base_url + chapter.name + ".md)";
      const json::array& questions = list(chapter.front, "questions");
      if (!questions.empty()) out += ": " + std::string(view(questions[0].as_string()));
      out += "\n";
    }
  }
  return out;
}

}  // namespace weave
