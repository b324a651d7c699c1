#include "language.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tangle {
namespace {

using Entry = std::pair<std::string_view, std::string_view>;

constexpr std::array<Entry, 25> families = {{
    {"c", "cpp"},           {"cpp", "cpp"},       {"c++", "cpp"},       {"cuda", "cpp"},
    {"python", "python"},   {"py", "python"},     {"sh", "sh"},         {"bash", "sh"},
    {"shell", "sh"},        {"cmake", "cmake"},   {"yaml", "yaml"},     {"yml", "yaml"},
    {"toml", "toml"},       {"make", "make"},     {"makefile", "make"}, {"dockerfile", "dockerfile"},
    {"javascript", "js"},   {"js", "js"},         {"typescript", "js"}, {"rust", "rust"},
    {"lua", "lua"},         {"sql", "sql"},       {"json", "json"},     {"jinja", "jinja"},
    {"proto", "proto"},
}};

constexpr std::array<Entry, 13> comments = {{
    {"cpp", "//"},  {"js", "//"},   {"rust", "//"}, {"proto", "//"}, {"python", "#"},
    {"sh", "#"},    {"cmake", "#"}, {"yaml", "#"},  {"toml", "#"},   {"make", "#"},
    {"dockerfile", "#"}, {"lua", "--"}, {"sql", "--"},
}};

constexpr std::array<Entry, 19> endings = {{
    {".c", "cpp"},     {".h", "cpp"},      {".cpp", "cpp"},   {".hpp", "cpp"},   {".cc", "cpp"},
    {".cu", "cpp"},    {".cuh", "cpp"},    {".inc", "cpp"},   {".py", "python"}, {".sh", "sh"},
    {".cmake", "cmake"}, {".yaml", "yaml"}, {".yml", "yaml"}, {".toml", "toml"}, {".js", "js"},
    {".json", "json"}, {".rs", "rust"},    {".sql", "sql"},   {".lua", "lua"},
}};

template <std::size_t N>
std::string_view lookup(const std::array<Entry, N>& table, std::string_view key, std::string_view otherwise) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Entry& entry) { return entry.first == key; });
  return found == table.end() ? otherwise : found->second;
}

}  // namespace

std::string_view family(std::string_view language) { return lookup(families, language, language); }

std::string_view line_comment(std::string_view language) { return lookup(comments, family(language), ""); }

bool is_cuda(std::string_view language) { return language == "cuda"; }

bool is_cpp(std::string_view language) {
  return language == "cpp" || language == "c++" || is_cuda(language);
}

std::string_view family_of_path(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = path.substr(slash == std::string_view::npos ? 0 : slash + 1);
  if (name == "CMakeLists.txt") return "cmake";
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : lookup(endings, name.substr(dot), "");
}

}  // namespace tangle
