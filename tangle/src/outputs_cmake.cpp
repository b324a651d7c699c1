#include "output.h"

#include <algorithm>
#include <map>
#include <set>

#include "text.h"

namespace tangle {
namespace {

constexpr std::string_view files_open = "set(ROSE_FILES\n";

void append_set(std::string& out, std::string_view name, const std::set<std::string_view>& values) {
  out += concat("set(", name);
  for (const std::string_view value : values) out += concat("\n  ", value);
  out += ")\n";
}

/// A CMake bracket argument, in which nothing is special.
std::string bracketed(std::string_view text) {
  std::string equals = "==";
  while (text.find("]" + equals + "]") != std::string_view::npos || text.ends_with("]" + equals)) equals += '=';
  return concat('[', equals, '[', text, ']', equals, ']');
}

/// What the target of an output links beside its module, as its chapter says.
void append_links(std::string& out, const Program& program, const Output& output) {
  const auto links = program.book->chapters[output.chapter].front.list("links");
  std::string line = concat("set(ROSE_LINKS_", output.id);
  for (const YamlNode* link : links) {
    if (is_id(link->scalar)) line += " " + link->scalar;
  }
  line += ")\n";
  if (!links.empty() && out.find(line) == std::string::npos) out += line;
}

}  // namespace

std::string outputs_cmake(const Program& program, const std::vector<Output>& outputs) {
  std::string out = "# What the book produces, by kind. Written by `tangle emit`.\n";
  std::map<OutputKind, std::set<std::string_view>> ids;
  std::set<std::string_view> sources, files;
  for (const Output& output : outputs) {
    files.insert(output.path);
    ids[output.kind].insert(output.id);
    if (output.kind == OutputKind::source) sources.insert(output.path);
  }
  append_set(out, "ROSE_OUTPUTS", sources);
  append_set(out, "ROSE_CHAPTER_TESTS", ids[OutputKind::test]);
  append_set(out, "ROSE_EXAMPLES", ids[OutputKind::example]);
  append_set(out, "ROSE_EXAMPLE_OUTPUTS", ids[OutputKind::expected]);
  append_set(out, "ROSE_FAILS", ids[OutputKind::fail]);
  append_set(out, "ROSE_EXERCISES", ids[OutputKind::exercise]);
  append_set(out, "ROSE_BENCHES", ids[OutputKind::bench]);
  for (const Output& output : outputs) {
    if (output.kind == OutputKind::fail) {
      const std::string_view expect = program.head(*program.find(output.id)).attributes.value("expect");
      out += concat("set(ROSE_FAIL_EXPECT_", output.id, ' ', bracketed(expect), ")\n");
    }
    const bool target =
        output.kind != OutputKind::source && output.kind != OutputKind::expected && output.kind != OutputKind::list;
    if (target) append_links(out, program, output);
  }
  out += "# Every file here, so that `tangle emit` can remove what is no longer produced.\n";
  append_set(out, "ROSE_FILES", files);
  return out;
}

std::set<std::string> listed_files(std::string_view text) {
  std::set<std::string> out;
  std::size_t at = text.find(files_open);
  if (at == std::string_view::npos) return out;
  text.remove_prefix(at + files_open.size());
  text = text.substr(0, text.find(')'));
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (path_objection(trimmed(line)).empty()) out.emplace(trimmed(line));
  }
  return out;
}

}  // namespace tangle
