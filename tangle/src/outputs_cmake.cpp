#include "output.h"

#include <algorithm>

#include "text.h"

namespace tangle {
namespace {

constexpr std::string_view files_open = "set(ROSE_FILES\n";

void append_set(std::string& out, std::string_view name, std::vector<std::string> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  out += "set(";
  out += name;
  for (const std::string& value : values) out += "\n  " + value;
  out += ")\n";
}

std::vector<std::string> ids_of(const std::vector<Output>& outputs, OutputKind kind) {
  std::vector<std::string> out;
  for (const Output& output : outputs) {
    if (output.kind == kind) out.emplace_back(output.id);
  }
  return out;
}

/// A CMake bracket argument, in which nothing is special.
std::string bracketed(std::string_view text) {
  std::string equals = "==";
  while (text.find("]" + equals + "]") != std::string_view::npos || text.ends_with("]" + equals)) equals += '=';
  return "[" + equals + "[" + std::string(text) + "]" + equals + "]";
}

/// What the target of an output links beside its module, as its chapter says.
void append_links(std::string& out, const Program& program, const Output& output) {
  const auto links = program.book->chapters[output.chapter].front.list("links");
  std::string line = "set(ROSE_LINKS_" + std::string(output.id);
  for (const YamlNode* link : links) {
    if (is_id(link->scalar)) line += " " + link->scalar;
  }
  line += ")\n";
  if (!links.empty() && out.find(line) == std::string::npos) out += line;
}

}  // namespace

std::string outputs_cmake(const Program& program, const std::vector<Output>& outputs) {
  std::string out = "# What the book produces, by kind. Written by `tangle emit`.\n";
  std::vector<std::string> sources, files;
  for (const Output& output : outputs) {
    files.push_back(output.path);
    if (output.kind == OutputKind::source) sources.push_back(output.path);
  }
  append_set(out, "ROSE_OUTPUTS", sources);
  append_set(out, "ROSE_CHAPTER_TESTS", ids_of(outputs, OutputKind::test));
  append_set(out, "ROSE_EXAMPLES", ids_of(outputs, OutputKind::example));
  append_set(out, "ROSE_EXAMPLE_OUTPUTS", ids_of(outputs, OutputKind::expected));
  append_set(out, "ROSE_FAILS", ids_of(outputs, OutputKind::fail));
  append_set(out, "ROSE_EXERCISES", ids_of(outputs, OutputKind::exercise));
  append_set(out, "ROSE_BENCHES", ids_of(outputs, OutputKind::bench));
  for (const Output& output : outputs) {
    if (output.kind == OutputKind::fail) {
      const Chunk& chunk = *program.find(output.id);
      const std::string_view expect = program.fence(chunk.parts[chunk.first_live]).attributes.value("expect");
      out += "set(ROSE_FAIL_EXPECT_" + std::string(output.id) + " " + bracketed(expect) + ")\n";
    }
    const bool target =
        output.kind != OutputKind::source && output.kind != OutputKind::expected && output.kind != OutputKind::list;
    if (target) append_links(out, program, output);
  }
  out += "# Every file here, so that `tangle emit` can remove what is no longer produced.\n";
  append_set(out, "ROSE_FILES", files);
  return out;
}

std::vector<std::string> listed_files(std::string_view text) {
  std::vector<std::string> out;
  std::size_t at = text.find(files_open);
  if (at == std::string_view::npos) return out;
  text.remove_prefix(at + files_open.size());
  text = text.substr(0, text.find(')'));
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view path = trimmed(text.substr(0, end));
    if (path_objection(path).empty()) out.emplace_back(path);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace tangle
