// The commands that write or compare outputs.
#include <cstdio>
#include <filesystem>

#include "files.h"
#include "options.h"
#include "transaction.h"

namespace tangle {
namespace {

/// Where the previous texts of changed outputs are kept; nothing reads it.
constexpr const char* replaced_folder = "build/replaced";

/// Whether the outputs go where the committed sources are.
bool is_generated(const Options& options) {
  return std::filesystem::path(options.out).lexically_normal() == std::filesystem::path("generated");
}

/// Partial programs and line directives go elsewhere.
bool check_elsewhere(const Options& options, Diagnostics& diagnostics) {
  if ((options.until.empty() && options.lines.empty()) || !is_generated(options)) return true;
  diagnostics.error("wrong-folder", {}, "--until and --lines need --out DIR, another folder than generated/");
  return false;
}

void save(const std::string& path, std::string_view text, Diagnostics& diagnostics) {
  if (read_file(path) == text) return;
  const std::string parent = std::filesystem::path(path).parent_path();
  std::string why = parent.empty() ? "" : make_folders(parent);
  if (why.empty()) why = write_file_atomic(path, text);
  if (!why.empty()) diagnostics.error("cannot-write", {}, path + ": " + why);
}

void warn_about_foreign(const Transaction& transaction, Diagnostics& diagnostics) {
  constexpr std::size_t most = 5;
  const std::size_t count = transaction.foreign.size();
  for (std::size_t i = 0; i < std::min(most, count); ++i) {
    diagnostics.warning(
        "foreign-file", {},
        transaction.folder + "/" + transaction.foreign[i] + " does not come from the book; it is left alone");
  }
  if (count <= most) return;
  diagnostics.warning("foreign-file", {}, "and so are " + std::to_string(count - most) + " more files");
}

/// Prints the messages. Returns the exit code.
int show(const Diagnostics& diagnostics, const Options& options) {
  const std::string text = diagnostics.rendered(options.format);
  std::fwrite(text.data(), 1, text.size(), stderr);
  return diagnostics.failed() ? 1 : 0;
}

}  // namespace

bool Session::load(const Options& options) {
  book = read_book(options.book, diagnostics);
  auto chapters = static_cast<std::uint32_t>(book.chapters.size());
  if (!options.until.empty()) {
    const int last = find_chapter(book, options.until, diagnostics);
    if (last >= 0) chapters = static_cast<std::uint32_t>(last) + 1;
  }
  program = link(book, chapters, diagnostics);
  outputs = produce(program, diagnostics);
  return !diagnostics.failed();
}

int Session::report(const Options& options) {
  if (options.command != "check") diagnostics.drop_warnings("long-chunk");  // style is for the check
  return show(diagnostics, options);
}

int print(const Options& options, std::string_view text) {
  if (options.output.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0 ? 0 : 1;
  }
  Diagnostics diagnostics;
  save(options.output, text, diagnostics);
  return show(diagnostics, options);
}

int run_emit(const Options& options) {
  Session session;
  Diagnostics& diagnostics = session.diagnostics;
  if (!check_elsewhere(options, diagnostics) || !session.load(options)) return session.report(options);
  if (!options.lines.empty()) add_line_directives(session.program, options.out, session.outputs);
  const Transaction transaction = plan(options.out, session.outputs, diagnostics);
  warn_about_foreign(transaction, diagnostics);
  if (!diagnostics.failed()) apply(transaction, diagnostics, is_generated(options) ? replaced_folder : "");
  if (diagnostics.failed()) return session.report(options);
  if (!options.map.empty()) save(options.map, source_map_json(session.program, session.outputs), diagnostics);
  if (!options.book_json.empty()) save(options.book_json, book_json(session.program, session.outputs), diagnostics);
  if (!options.quiet && !diagnostics.failed()) {
    std::printf("tangle: %zu files, %zu written, %zu removed\n", session.outputs.size(),
                transaction.missing.size() + transaction.changed.size(), transaction.removed.size());
  }
  return session.report(options);
}

int run_check(const Options& options) {
  Session session;
  session.diagnostics.make_strict();
  if (!session.load(options)) return session.report(options);
  const Transaction transaction = plan(options.out, session.outputs, session.diagnostics);
  report_drift(session.program, transaction, session.diagnostics);
  const int code = session.report(options);
  if (code != 0 && options.format == MessageFormat::gcc) {
    std::fprintf(stderr,
                 "tangle: the book and %s disagree: `make tangle` takes the book's text, `make stitch` the files'\n",
                 options.out.c_str());
  }
  return code;
}

}  // namespace tangle
