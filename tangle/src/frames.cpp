#include "output.h"

#include <algorithm>
#include <set>

#include "expand.h"
#include "text.h"

namespace tangle {
namespace {

/// What every test may use without saying so.
constexpr std::string_view standard_headers =
    "algorithm array atomic bit chrono cmath cstddef cstdint cstdio cstdlib cstring filesystem fstream functional "
    "iostream limits map memory mutex numeric optional random set span sstream stdexcept string string_view thread "
    "tuple unordered_map utility variant vector ";

/// What a test can include: device code (.cuh) is for nvcc, and tests are C++.
bool is_header(std::string_view path) { return path.ends_with(".h") || path.ends_with(".hpp"); }

/// The headers that a chapter tangles and those it names, each block sorted as clang-format sorts it.
std::string includes(const Program& program, const Document& document) {
  std::set<std::string> ours, others;
  for (const YamlNode* node : document.front.list("tangles")) {
    const std::string& path = node->scalar;
    const bool produced = std::ranges::find(program.chunks, path, &Chunk::file) != program.chunks.end();
    if (is_header(path) && produced) ours.insert(quoted(path));
  }
  for (const YamlNode* node : document.front.list("test_includes")) {
    const std::string& name = node->scalar;
    if (name.starts_with("rose/") || name.starts_with("labs/")) ours.insert(quoted(name));
    else others.insert(name.starts_with('<') ? name : concat('<', name, '>'));
  }
  std::string out = "#include <gmock/gmock.h>\n#include <gtest/gtest.h>\n\n";
  for (std::string_view rest = standard_headers; !rest.empty(); rest.remove_prefix(rest.find(' ') + 1)) {
    out += concat("#include <", rest.substr(0, rest.find(' ')), ">\n");
  }
  for (const auto* block : {&others, &ours}) {
    if (!block->empty()) out += '\n';
    for (const std::string& header : *block) out += concat("#include ", header, '\n');
  }
  return out;
}

}  // namespace

void test_file(const Program& program, Output& output, const std::vector<std::uint32_t>& chunks,
               std::string_view otherwise) {
  const Chunk& head = program.chunks[chunks.front()];
  const Document& document = program.book->chapters[head.parts.front().chapter];
  const std::string_view title = document.front.text("title").empty() ? document.name : document.front.text("title");
  const std::string_view what = head.role == Role::test ? "Tests" : "An exercise";
  Expander out(program, output);
  out.frame(concat("// ", what, " of the chapter ", quoted(title), ".\n\n"));
  out.frame(includes(program, document));
  std::string_view open;  // the namespace that is open, if any
  const auto enter = [&](std::string_view ns) {
    if (ns == open) return;
    if (!open.empty()) out.frame(concat("\n}  // namespace\n}  // namespace ", open, '\n'));
    if (!ns.empty()) out.frame(concat("\nnamespace ", ns, " {\nnamespace {\n"));
    open = ns;
  };
  for (const std::uint32_t index : chunks) {
    const std::string_view ns = program.head(program.chunks[index]).attributes.value("ns");
    enter(ns.empty() ? otherwise : ns);
    out.blank_line();
    out.chunk(index);
  }
  enter({});
}

}  // namespace tangle
