#include "language.h"

#include <array>

namespace tangle {
namespace {

/// Words and endings stand between blanks.
struct Family {
  std::string_view name, comment, words, endings;
};

constexpr std::array<Family, 15> families = {{
    {"cpp", "//", " c cpp c++ cuda ", " .c .h .cpp .hpp .cc .cu .cuh .inc "},
    {"python", "#", " python py ", " .py "},
    {"sh", "#", " sh bash shell ", " .sh "},
    {"cmake", "#", " cmake ", " .cmake "},
    {"yaml", "#", " yaml yml ", " .yaml .yml "},
    {"toml", "#", " toml ", " .toml "},
    {"make", "#", " make makefile ", " .mk "},
    {"dockerfile", "#", " dockerfile ", ""},
    {"js", "//", " javascript js typescript ", " .js .ts "},
    {"rust", "//", " rust ", " .rs "},
    {"lua", "--", " lua ", " .lua "},
    {"sql", "--", " sql ", " .sql "},
    {"proto", "//", " proto ", " .proto "},
    {"json", "", " json ", " .json "},
    {"jinja", "", " jinja ", ""},
}};

/// The family in whose `field` the word stands, or null.
const Family* find(std::string_view Family::*field, std::string_view word) {
  for (const Family& family : families) {
    const std::string_view list = family.*field;
    for (std::size_t at = list.find(word); at != std::string_view::npos; at = list.find(word, at + 1)) {
      const std::size_t end = at + word.size();
      if (at > 0 && list[at - 1] == ' ' && end < list.size() && list[end] == ' ') return &family;
    }
  }
  return nullptr;
}

}  // namespace

std::string_view family(std::string_view language) {
  const Family* found = find(&Family::words, language);
  return found ? found->name : language;
}

std::string_view line_comment(std::string_view language) {
  const Family* found = find(&Family::words, language);
  return found ? found->comment : "";
}

bool is_cuda(std::string_view language) { return language == "cuda"; }

bool is_cpp(std::string_view language) { return language == "cpp" || language == "c++" || is_cuda(language); }

std::string_view family_of_path(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (name == "CMakeLists.txt") return "cmake";
  const std::size_t dot = name.rfind('.');
  const Family* found = dot == std::string_view::npos ? nullptr : find(&Family::endings, name.substr(dot));
  return found ? found->name : "";
}

}  // namespace tangle
