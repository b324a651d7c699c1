// Any edit of an output: taken back exactly, or refused with a message. The first line of the input says where, the rest is the edit.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>

#include "output.h"
#include "program.h"
#include "stitch.h"

namespace {

constexpr const char* chapter =
    "# X\n\n```cpp {#root title=\"Open\" file=\"rose/a.cpp\"}\n#include <x>\n\nvoid f() {\n  "
    "<<inner>>\n}\n\n<<shared>>\n```\n\n"
    "```cpp {#inner title=\"Do it\"}\nint a = 1;\nif (a) {\n  <<deep>>\n}\n```\n\n```cpp "
    "{#deep}\ng(a);\n```\n\n"
    "```cpp {#shared title=\"Say it twice\"}\nint twice();\n```\n\n- in a list\n\n  ```cpp {#other "
    "file=\"rose/b.cpp\"}\n"
    "  int b;\n\n  <<shared>>\n  ```\n\n```cpp {#t .test ns=\"rose\"}\nTEST(A, B) {}\n```\n";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tangle;
  if (size < 4) return 0;
  Diagnostics diagnostics;
  const Book book = with_texts(Book{}, {{"x", "book/x.md", chapter}}, diagnostics);
  const Program program = link(book, 1, diagnostics);
  const std::vector<Output> outputs = produce(program, diagnostics);
  if (diagnostics.failed()) std::abort();
  const std::uint32_t which = data[0] % static_cast<std::uint32_t>(outputs.size() - 1);
  std::string text = outputs[which].text;
  const std::size_t begin = std::min<std::size_t>(text.size(), data[1]), length = data[2] % 64;
  text.replace(begin, std::min(length, text.size() - begin),
               reinterpret_cast<const char*>(data + 3), size - 3);
  std::deque<Source> sources;
  const std::vector<Edited> edited = {
      {which, &sources.emplace_back("generated/" + outputs[which].path, text)}};
  const std::vector<ChapterText> texts = stitch(program, outputs, edited, diagnostics);
  if (texts.empty() != diagnostics.failed()) std::abort();
  diagnostics.rendered(MessageFormat::gcc);
  if (texts.empty()) return 0;
  Diagnostics again;
  const Book stitched = with_texts(Book{}, texts, again);
  const Program program_again = link(stitched, 1, again);
  const std::vector<Output> result = produce(program_again, again);
  if (again.failed() || result.size() != outputs.size() || result[which].text != text) std::abort();
  return 0;
}
