#include "fonts.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "cache.h"
#include "files.h"
#include "process.h"

namespace weave {
namespace {

namespace fs = std::filesystem;

std::size_t length_of_character(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
}

/// The characters that are not ASCII, all characters of formulas, and the entities, as fonts.py will see them.
std::string characters_of(const Site& site) {
  std::set<std::string_view> text, formulas;
  for (const auto& [path, bytes] : site) {
    if (!path.ends_with(".html") || path.starts_with("code/") || path.starts_with("source/")) continue;
    bool formula = false;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::string_view rest = std::string_view(bytes).substr(at);
      std::size_t length = 1;
      if (rest.front() == '<') {
        if (rest.starts_with("<math")) formula = true;
        if (rest.starts_with("</math")) formula = false;
        length = std::min(rest.find('>'), rest.size() - 1) + 1;
      } else if (rest.front() == '&') {
        length = std::min(rest.find(';'), rest.size() - 1) + 1;
        text.insert(rest.substr(0, length));
      } else {
        length = std::min(length_of_character(rest.front()), rest.size());
        if (length > 1) text.insert(rest.substr(0, length));
      }
      if (formula && rest.front() != '<') formulas.insert(rest.substr(0, length));
      at += length;
    }
  }
  std::string all;
  for (const std::string_view each : text) all += each;
  all += '\n';
  for (const std::string_view each : formulas) all += each;
  return all;
}

}  // namespace

void add_fonts(const Site& site, const std::string& folder, const std::string& python, const std::string& script,
               const std::string& cache) {
  const fs::path kept = cache + "/fonts/" + sha256(tangle::read_file(script).value_or("") + characters_of(site));
  const fs::path here = folder + "/assets/fonts";
  if (fs::exists(kept)) {
    fs::create_directories(here);
    fs::copy(kept, here);
    return;
  }
  const Finished done = run_program({python, script, folder, cache + "/fonts"}, {}, {});
  if (done.status != 0) throw std::runtime_error(script + " failed:\n" + done.error);
  if (!done.error.empty() || !fs::exists(here)) return;  // a face that is missing may be there next time
  const fs::path fresh = kept.string() + ".new";
  fs::remove_all(fresh);
  fs::create_directories(fresh);
  fs::copy(here, fresh);
  fs::rename(fresh, kept);
}

}  // namespace weave
