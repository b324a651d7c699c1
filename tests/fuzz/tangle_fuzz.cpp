// Any bytes as a chapter: the tool ends with outputs or with messages, and its source map covers every line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "output.h"
#include "program.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tangle;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::size_t half = text.find('\0');  // a NUL parts two chapters
  std::vector<ChapterText> chapters = {{"one", "book/one.md", text.substr(0, half)}};
  if (half != std::string::npos) chapters.push_back({"two", "book/two.md", text.substr(half + 1)});
  Diagnostics diagnostics;
  const Book book = with_texts(Book{}, std::move(chapters), diagnostics);
  const Program program = link(book, static_cast<std::uint32_t>(book.chapters.size()), diagnostics);
  const std::vector<Output> outputs = produce(program, diagnostics);
  const std::string messages = diagnostics.rendered(MessageFormat::gcc);
  require(!diagnostics.failed() || messages.find("error: ") != std::string::npos);
  if (diagnostics.failed()) return 0;
  for (const Output& output : outputs) {
    require(output.path.find("..") == std::string::npos && !output.path.starts_with('/'));
    std::uint32_t line = 1;
    if (output.kind == OutputKind::list) continue;
    for (const Run& run : output.map) {
      require(run.line == line);
      line += run.lines;
    }
  }
  return 0;
}
