// `tangle stitch` and `tangle fmt`: find what was edited, put it into the chapters, bring the outputs up to date.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>

#include "diff.h"
#include "files.h"
#include "language.h"
#include "options.h"
#include "stitch.h"
#include "text.h"
#include "transaction.h"

namespace tangle {
namespace {

/// Standard output of a shell command, or nothing when it fails.
std::optional<std::string> output_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return std::nullopt;
  std::string text;
  char buffer[1 << 14];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  if (pclose(pipe) != 0) return std::nullopt;
  return text;
}

/// One word of a shell command, whatever is in it.
std::string shell_word(std::string_view word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

/// The text that both the book's and the file's author started from: the last commit's, where git has one.
std::string ancestor_of(const std::string& folder, const Output& output) {
  return output_of("git -C " + shell_word(folder) + " show HEAD:./" + shell_word(output.path) + " 2>/dev/null")
      .value_or(output.text);
}

/// Finds the edited outputs. Where the chapter changed too since the last commit, both changes are merged.
std::vector<Edited> find_edits(const Options& options, const std::vector<Output>& outputs, std::deque<Source>& sources,
                               Diagnostics& diagnostics) {
  std::vector<Edited> edited;
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    const Output& output = outputs[i];
    if (output.kind == OutputKind::list) continue;
    const std::string path = options.out + "/" + output.path;
    const auto text = read_file(path, false);
    if (!text) {
      diagnostics.warning("stitch-missing", output.place, path + " was removed; `tangle emit` writes it again");
      continue;
    }
    if (*text == output.text) continue;
    const std::string ancestor = options.since_emit ? output.text : ancestor_of(options.out, output);
    if (*text == ancestor) continue;  // only the chapter changed: emit brings the file up to date
    std::string merged;
    std::uint32_t conflict = 0;
    const Source& file = sources.emplace_back(path, *text);
    if (!merge(lines_of(ancestor), lines_of(output.text), lines_of(*text), merged, conflict)) {
      const std::size_t offset = skip_lines(file.text, 0, conflict);
      diagnostics
          .error("stitch-conflict", span_at(file, offset, 0),
                 "here both this file and its chapter changed since the last commit")
          .help(
              "if the chapters were tangled before the file was edited, `tangle stitch --since-emit` takes the file's "
              "side");
      continue;
    }
    if (merged == output.text) continue;
    edited.push_back({i, &sources.emplace_back(path, std::move(merged))});
  }
  return edited;
}

/// Writes the chapters that changed and then what they produce.
int write_back(const Options& options, Session& session, const std::vector<ChapterText>& texts) {
  std::size_t chapters = 0;
  for (std::size_t c = 0; c < texts.size(); ++c) {
    if (texts[c].bytes == session.book.chapters[c].source->text) continue;
    if (const std::string why = write_file_atomic(texts[c].path, texts[c].bytes); !why.empty()) {
      session.diagnostics.error("cannot-write", {}, texts[c].path + ": " + why + "; nothing was lost, run it again");
      return session.report(options);
    }
    ++chapters;
    if (!options.quiet) std::printf("tangle: stitched %s\n", texts[c].path.c_str());
  }
  if (!options.quiet && chapters == 0) std::printf("tangle: nothing to stitch\n");
  Session again;
  if (!again.load(options)) return again.report(options);
  const Transaction transaction = plan(options.out, again.outputs, again.diagnostics);
  if (!again.diagnostics.failed()) apply(transaction, again.diagnostics);
  return again.report(options);
}

/// The output's text after the formatter, which reads it from `scratch`; the text itself where that fails.
std::string formatted(const std::string& formatter, const std::string& scratch, const Output& output) {
  if (!write_file(scratch, output.text).empty()) return output.text;
  return output_of(formatter + " --assume-filename=" + shell_word(output.path) + " <" + shell_word(scratch))
      .value_or(output.text);
}

}  // namespace

int run_stitch(const Options& options) {
  Session session;
  if (!session.load(options)) return session.report(options);
  std::deque<Source> sources;
  const std::vector<Edited> edited = find_edits(options, session.outputs, sources, session.diagnostics);
  if (session.diagnostics.failed()) return session.report(options);
  std::vector<ChapterText> texts;
  if (!edited.empty()) texts = stitch(session.program, session.outputs, edited, session.diagnostics);
  if (const int code = session.report(options); code != 0) {
    if (options.format == MessageFormat::gcc) std::fputs("tangle: nothing was written\n", stderr);
    return code;
  }
  return write_back(options, session, texts);
}

/// Formats every C++ output; what cannot be taken back is reported file by file, and the rest is kept.
int run_fmt(const Options& options) {
  Session session;
  if (!session.load(options)) return session.report(options);
  const char* chosen = std::getenv("CLANG_FORMAT");
  const std::string formatter = chosen ? chosen : "clang-format-16";
  if (!output_of(formatter + " --version 2>&1")) {
    session.diagnostics.error("no-formatter", {}, formatter + " does not run; CLANG_FORMAT names another one");
    return session.report(options);
  }
  const std::string scratch = options.out + "/.fmt-" + std::to_string(getpid());
  std::deque<Source> sources;
  std::vector<Edited> kept, pending;
  std::vector<ChapterText> texts;
  const auto keep = [&](std::vector<Edited> more, Diagnostics& diagnostics) {
    more.insert(more.begin(), kept.begin(), kept.end());
    std::vector<ChapterText> next = stitch(session.program, session.outputs, more, diagnostics);
    if (next.empty()) return false;
    kept = std::move(more);
    texts = std::move(next);
    return true;
  };
  for (std::uint32_t i = 0; i < session.outputs.size(); ++i) {
    const Output& output = session.outputs[i];
    if (family_of_path(output.path) != "cpp") continue;
    std::string text = formatted(formatter, scratch, output);
    if (text == output.text) continue;
    const Edited edit{i, &sources.emplace_back(options.out + "/" + output.path, std::move(text))};
    Diagnostics alone;
    if (!keep({edit}, alone)) pending.push_back(edit);
  }
  // Files that share a chunk, such as an exercise's stub and solution, only change together.
  Diagnostics together;
  if (!pending.empty() && !keep(pending, together)) {
    for (const Edited& edit : pending) keep({edit}, session.diagnostics);
  }
  std::remove(scratch.c_str());
  const int refused = session.report(options);
  const int written = write_back(options, session, texts);
  return refused != 0 ? refused : written;
}

}  // namespace tangle
