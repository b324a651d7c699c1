#include "output.h"

#include <algorithm>
#include <array>
#include <set>

#include "expand.h"

namespace tangle {
namespace {

/// What every test may use without saying so.
constexpr std::string_view prelude =
    "#include <gmock/gmock.h>\n"
    "#include <gtest/gtest.h>\n"
    "\n"
    "#include <algorithm>\n#include <array>\n#include <atomic>\n#include <bit>\n#include <chrono>\n"
    "#include <cmath>\n#include <cstddef>\n#include <cstdint>\n#include <cstdio>\n#include <cstdlib>\n"
    "#include <cstring>\n#include <filesystem>\n#include <fstream>\n#include <functional>\n#include "
    "<iostream>\n#include <limits>\n"
    "#include <map>\n#include <memory>\n#include <mutex>\n#include <numeric>\n#include <optional>\n#include <random>\n"
    "#include <set>\n#include <span>\n#include <sstream>\n#include <stdexcept>\n#include <string>\n"
    "#include <string_view>\n#include <thread>\n#include <tuple>\n#include <unordered_map>\n"
    "#include <utility>\n#include <variant>\n#include <vector>\n";

/// What a test can include: device code (.cuh) is for nvcc, and tests are C++.
bool is_header(std::string_view path) { return path.ends_with(".h") || path.ends_with(".hpp"); }

/// The headers that a chapter tangles and those it names, each block sorted as clang-format sorts it.
std::string includes(const Program& program, const Document& document) {
  const auto produced = [&](const std::string& path) {
    return std::any_of(program.chunks.begin(), program.chunks.end(),
                       [&](const Chunk& chunk) { return chunk.file == path; });
  };
  std::set<std::string> ours, others;
  for (const YamlNode* node : document.front.list("tangles")) {
    if (is_header(node->scalar) && produced(node->scalar)) ours.insert("#include \"" + node->scalar + "\"\n");
  }
  for (const YamlNode* node : document.front.list("test_includes")) {
    const std::string& name = node->scalar;
    if (name.starts_with('<')) others.insert("#include " + name + "\n");
    else if (name.starts_with("rose/") || name.starts_with("labs/")) ours.insert("#include \"" + name + "\"\n");
    else others.insert("#include <" + name + ">\n");
  }
  std::string out(prelude);
  for (const auto* block : {&others, &ours}) {
    if (!block->empty()) out += '\n';
    for (const std::string& line : *block) out += line;
  }
  return out;
}

}  // namespace

void test_file(const Program& program, Output& output, const std::vector<std::uint32_t>& chunks,
               std::string_view otherwise) {
  const Chunk& head = program.chunks[chunks.front()];
  const Document& document = program.book->chapters[head.parts.front().chapter];
  const std::string title(document.front.text("title").empty() ? document.name : document.front.text("title"));
  Expander out(program, output);
  out.frame((head.role == Role::test ? "// Tests of the chapter \"" : "// An exercise of the chapter \"") + title +
            "\".\n\n");
  out.frame(includes(program, document));
  std::string open;  // the namespace that is open
  bool any = false;
  const auto close = [&] {
    if (any && !open.empty()) out.frame("\n}  // namespace\n}  // namespace " + open + "\n");
  };
  for (const std::uint32_t index : chunks) {
    const Chunk& chunk = program.chunks[index];
    const Fence& fence = program.fence(chunk.parts[chunk.first_live]);
    std::string ns(fence.attributes.value("ns"));
    if (ns.empty()) ns = otherwise;
    if (!any || ns != open) {
      close();
      if (!ns.empty()) out.frame("\nnamespace " + ns + " {\nnamespace {\n");
      open = ns;
    }
    any = true;
    out.blank_line();
    out.chunk(index);
  }
  close();
}

}  // namespace tangle
