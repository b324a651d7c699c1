// `tangle list`: the outputs, for people, programs and CMake.
#include "book_json.h"
#include "json.h"
#include "options.h"

namespace tangle {
namespace {

std::string list_json(const Session& session) {
  Json json;
  json.open('[');
  for (const Output& output : session.outputs) {
    json.line().open('{').key("path").value(output.path).key("kind").value(kind_name(output.kind));
    json.key("lines").value(std::int64_t(output.map.empty() ? 0 : output.map.back().line + output.map.back().lines - 1));
    json.key("bytes").value(static_cast<std::int64_t>(output.text.size()));
    if (output.kind != OutputKind::list) {
      json.key("chapter").value(session.book.chapters[output.chapter].name).key("id").value(output.id);
    }
    json.close('}');
  }
  return json.close(']').take();
}

std::string list_text(const Session& session) {
  std::string out;
  for (std::uint32_t c = 0; c < session.program.chapters; ++c) {
    std::string files;
    for (const Output& output : session.outputs) {
      if (output.kind == OutputKind::list || output.chapter != c) continue;
      const std::uint32_t lines = output.map.empty() ? 0 : output.map.back().line + output.map.back().lines - 1;
      files += "  " + output.path + "  " + std::string(kind_name(output.kind)) + ", " + std::to_string(lines) + (lines == 1 ? " line\n" : " lines\n");
    }
    if (!files.empty()) out += std::string(session.book.chapters[c].name) + "\n" + files;
  }
  return out;
}

}  // namespace

int run_list(const Options& options) {
  Session session;
  if (!session.load(options)) return session.report(options);
  session.report(options);
  if (options.cmake) return print(options, session.outputs.back().text);
  return print(options, options.json ? list_json(session) : list_text(session));
}

int run_book_json(const Options& options) {
  Session session;
  if (!session.load(options)) return session.report(options);
  session.report(options);
  return print(options, book_json(session.program, session.outputs));
}

}  // namespace tangle
