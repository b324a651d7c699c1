#include "place.h"

#include <algorithm>
#include <optional>

#include "diff.h"
#include "language.h"
#include "text.h"

namespace tangle {
namespace {

bool is_blank(std::string_view line) { return trimmed(line.substr(0, line.find('\n'))).empty(); }

bool is_body(const Run* run) { return run && run->kind == Run::Kind::body && run->chunk != Run::no_part; }

class Placer {
 public:
  Placer(const Program& program, const Output& output, const Source& wanted, Seam seam, std::vector<Edit>& edits)
      : program_(program), output_(output), wanted_(wanted), seam_(seam), edits_(edits) {}

  void run(Diagnostics& diagnostics) {
    for (const Hunk& hunk : diff(before_, after_)) {
      const std::string refused = try_at(hunk);
      if (!refused.empty() && !slide(hunk)) diagnostics.error("stitch-refused", place(hunk), refused);
    }
  }

 private:
  /// Adds the edits of one hunk. Returns why it cannot, or an empty string.
  std::string try_at(const Hunk& hunk) {
    const std::size_t placed = edits_.size();
    std::string refused = hunk.old_begin == hunk.old_end ? insert(hunk) : replace(hunk);
    if (!refused.empty()) edits_.resize(placed);
    return refused;
  }

  /// Lines that repeat (blank ones, braces) leave open which of them are new or gone: tries the other readings.
  bool slide(const Hunk& hunk) {
    const bool inserts = hunk.old_begin == hunk.old_end;
    if (!inserts && hunk.new_begin != hunk.new_end) return false;
    const Lines& lines = inserts ? after_ : before_;
    const auto begin = inserts ? &Hunk::new_begin : &Hunk::old_begin;
    const auto end = inserts ? &Hunk::new_end : &Hunk::old_end;
    for (Hunk up = hunk; up.old_begin > 0 && up.new_begin > 0 && lines[up.*begin - 1] == lines[up.*end - 1];) {
      up = {up.old_begin - 1, up.old_end - 1, up.new_begin - 1, up.new_end - 1};
      if (try_at(up).empty()) return true;
    }
    for (Hunk down = hunk; down.*end < lines.size() && lines[down.*begin] == lines[down.*end];) {
      down = {down.old_begin + 1, down.old_end + 1, down.new_begin + 1, down.new_end + 1};
      if (try_at(down).empty()) return true;
    }
    return false;
  }

  /// The first line of the hunk in the wanted text.
  Span place(const Hunk& hunk) const {
    const std::size_t begin = skip_lines(wanted_.text, 0, hunk.new_begin);
    const std::size_t end = skip_lines(wanted_.text, begin, hunk.new_end > hunk.new_begin ? 1 : 0);
    return span_at(wanted_, begin, end - begin);
  }

  const Run* run_at(std::uint32_t line) const {
    return line < before_.size() ? origin_of(program_, output_, line + 1, 0).run : nullptr;
  }

  const Fence& fence(const Run& run) const { return program_.fence(program_.chunks[run.chunk].parts[run.part]); }

  /// Chapter offset of the old line, which is in `run` or follows it.
  std::uint32_t source_offset(const Run& run, std::uint32_t line) const {
    const std::string_view text = fence(run).body.source->text;
    return static_cast<std::uint32_t>(skip_lines(text, run.source_offset, line + 1 - run.line));
  }

  /// What stands before every line of the run in the output.
  std::string indent_of(const Run& run) const {
    const std::int64_t size = std::int64_t{run.column_delta} + fence(run).lines.indent;
    for (std::uint32_t i = 0; i < run.lines; ++i) {
      const std::string_view line = before_[run.line - 1 + i];
      if (!is_blank(line)) return std::string(line.substr(0, static_cast<std::size_t>(size)));
    }
    return std::string(static_cast<std::size_t>(size), ' ');
  }

  /// The hunk's new lines as the run's fence would hold them; nothing when one has too little indentation.
  std::optional<std::string> as_source(const Run& run, const Hunk& hunk) const {
    const std::string indent = indent_of(run), own(fence(run).lines.indent, ' ');
    std::string out;
    for (std::uint32_t i = hunk.new_begin; i < hunk.new_end; ++i) {
      if (is_blank(after_[i])) {
        out += own.empty() ? after_[i] : "\n";
      } else if (after_[i].starts_with(indent)) {
        out += concat(own, after_[i].substr(indent.size()));
      } else {
        return std::nullopt;
      }
    }
    return out;
  }

  /// Places a part of a hunk in the chunk of one run.
  bool add(const Run& run, const Hunk& part, const Hunk& whole) {
    std::optional<std::string> text = as_source(run, part);
    if (!text) return false;
    edits_.push_back({program_.chunks[run.chunk].parts[run.part].chapter, source_offset(run, part.old_begin),
                      source_offset(run, part.old_end), std::move(*text), place(whole)});
    return true;
  }

  std::string insert(const Hunk& hunk) {
    const Run* first = hunk.old_begin > 0 ? run_at(hunk.old_begin - 1) : nullptr;
    const Run* second = run_at(hunk.old_begin);
    if (seam_ == Seam::after) std::swap(first, second);
    for (const Run* run : {first, second}) {
      if (is_body(run) && add(*run, hunk, hunk)) return {};
    }
    if (is_body(first) || is_body(second))
      return "these lines have less indentation than the chunk they would belong to";
    return "these lines stand between lines that the tool writes, so no chunk can hold them";
  }

  /// Shares the new lines among the runs whose lines they replace, one for one as far as they go.
  std::string replace(const Hunk& hunk) {
    Hunk part = hunk;
    for (; part.old_begin < hunk.old_end; part.old_begin = part.old_end, part.new_begin = part.new_end) {
      const Run* run = run_at(part.old_begin);
      part.old_end = run ? std::min(hunk.old_end, run->line - 1 + run->lines) : hunk.old_end;
      part.new_end = std::min(hunk.new_end, part.new_begin + (part.old_end - part.old_begin));
      if (part.old_end == hunk.old_end) part.new_end = hunk.new_end;
      if (!is_body(run)) {
        const bool title = run && run->kind == Run::Kind::title;
        if (title && part == hunk) return retitle(*run, hunk);
        return title ? "this changes a comment made from a chunk's title together with other lines: edit the title in "
                       "the chapter"
                     : "this changes lines that the tool writes (includes, namespaces, blank lines around chunks)";
      }
      if (!add(*run, part, hunk)) return "these lines have less indentation than the chunk they belong to";
    }
    return {};
  }

  /// The comment that a title became reads otherwise: the title should.
  std::string retitle(const Run& run, const Hunk& hunk) {
    const KeyValue* title = fence(run).attributes.find("title");
    const std::string_view mark = line_comment(fence(run).language);
    Lines comment(before_.begin() + run.line - 1, before_.begin() + hunk.old_begin);
    comment.insert(comment.end(), after_.begin() + hunk.new_begin, after_.begin() + hunk.new_end);
    comment.insert(comment.end(), before_.begin() + hunk.old_end, before_.begin() + run.line - 1 + run.lines);
    std::string words;
    bool fits = title != nullptr;
    for (std::string_view line : comment) {
      line = trimmed(line.substr(0, line.find('\n')));
      fits = fits && line.starts_with(mark);
      const std::string_view rest = fits ? trimmed(line.substr(mark.size())) : "";
      words += concat(words.empty() || rest.empty() ? "" : " ", rest);
    }
    if (!fits || words.empty()) return "this comment comes from the chunk's title, which cannot become these lines";
    if (words.ends_with('.') && !title->value.ends_with('.')) words.pop_back();
    if (words.find_first_of("\"\\") != std::string::npos)
      return "a title with quotes or backslashes is edited in the chapter";
    edits_.push_back({program_.chunks[run.chunk].parts[run.part].chapter, title->value_span.begin,
                      title->value_span.end, words, place(hunk)});
    return {};
  }

  const Program& program_;
  const Output& output_;
  const Source& wanted_;
  Seam seam_;
  std::vector<Edit>& edits_;
  Lines before_ = lines_of(output_.text), after_ = lines_of(wanted_.text);
};

}  // namespace

void place_edits(const Program& program, const Output& output, const Source& wanted, Seam seam,
                 Diagnostics& diagnostics, std::vector<Edit>& edits) {
  Placer(program, output, wanted, seam, edits).run(diagnostics);
}

}  // namespace tangle
