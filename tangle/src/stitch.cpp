#include "stitch.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "diff.h"
#include "language.h"
#include "text.h"

namespace tangle {
namespace {

/// Bytes [begin, end) of a chapter become `text`.
struct Edit {
  std::uint32_t chapter = 0;
  std::uint32_t begin = 0, end = 0;
  std::string text;
  Span hunk;  ///< where it was asked for
};

/// To which side lines go that were inserted between two chunks.
enum class Seam { before, after };

std::uint32_t end_of_line(std::string_view text, std::uint32_t offset) {
  const std::size_t eol = text.find('\n', offset);
  return static_cast<std::uint32_t>(eol == std::string_view::npos ? text.size() : eol + 1);
}

bool is_blank(std::string_view line) { return trimmed(line.substr(0, line.find('\n'))).empty(); }

/// Places the hunks of one output.
class Placer {
 public:
  Placer(const Program& program, const Output& output, const Source& wanted, Seam seam, Diagnostics& diagnostics,
         std::vector<Edit>& edits)
      : program_(program),
        output_(output),
        wanted_(wanted),
        seam_(seam),
        diagnostics_(diagnostics),
        edits_(edits),
        before_(lines_of(output.text)),
        after_(lines_of(wanted.text)) {}

  void run() {
    for (const Hunk& hunk : diff(before_, after_)) {
      const std::string refused = try_at(hunk);
      if (!refused.empty() && !slide(hunk)) diagnostics_.error("stitch-refused", place(hunk), refused);
    }
  }

 private:
  /// Old lines [line, line + lines), from 0, with one origin.
  struct Piece {
    const Run* run;
    std::uint32_t line, lines;
  };

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
    std::uint32_t begin = inserts ? hunk.new_begin : hunk.old_begin, end = inserts ? hunk.new_end : hunk.old_end;
    for (Hunk up = hunk; begin > 0 && up.old_begin > 0 && up.new_begin > 0 && lines[begin - 1] == lines[end - 1];
         --begin, --end) {
      up = {up.old_begin - 1, up.old_end - 1, up.new_begin - 1, up.new_end - 1};
      if (try_at(up).empty()) return true;
    }
    begin = inserts ? hunk.new_begin : hunk.old_begin;
    end = inserts ? hunk.new_end : hunk.old_end;
    for (Hunk down = hunk; end < lines.size() && lines[begin] == lines[end]; ++begin, ++end) {
      down = {down.old_begin + 1, down.old_end + 1, down.new_begin + 1, down.new_end + 1};
      if (try_at(down).empty()) return true;
    }
    return false;
  }

  Span place(const Hunk& hunk) const {
    const auto offset = [&](std::uint32_t line) {
      return line < after_.size() ? static_cast<std::uint32_t>(after_[line].data() - wanted_.text.data())
                                  : static_cast<std::uint32_t>(wanted_.text.size());
    };
    const std::uint32_t begin = offset(hunk.new_begin);
    return {&wanted_, begin, std::max(begin, std::min(offset(hunk.new_end), end_of_line(wanted_.text, begin)))};
  }

  const Run* run_at(std::uint32_t line) const {
    return line < before_.size() ? origin_of(program_, output_, line + 1, 0).run : nullptr;
  }

  const Fence& fence(const Run& run) const { return program_.fence(program_.chunks[run.chunk].parts[run.part]); }

  static bool is_body(const Run* run) { return run && run->kind == Run::Kind::body && run->chunk != Run::no_part; }

  /// Chapter offset of the old line, which is in `run`.
  std::uint32_t source_offset(const Run& run, std::uint32_t line) const {
    const std::string_view text = fence(run).body.source->text;
    std::uint32_t offset = run.source_offset;
    for (std::uint32_t i = run.line - 1; i < line; ++i) offset = end_of_line(text, offset);
    return offset;
  }

  /// What stands before every line of the run in the output.
  std::string indent_of(const Run& run) const {
    const auto size = static_cast<std::size_t>(run.column_delta + static_cast<std::int32_t>(fence(run).lines.indent));
    for (std::uint32_t i = 0; i < run.lines; ++i) {
      const std::string_view line = before_[run.line - 1 + i];
      if (!is_blank(line)) return std::string(line.substr(0, size));
    }
    return std::string(size, ' ');
  }

  /// New lines [begin, end) as the run's fence would hold them; nothing when one has too little indentation.
  std::optional<std::string> as_source(const Run& run, std::uint32_t begin, std::uint32_t end) const {
    const std::string indent = indent_of(run), own(fence(run).lines.indent, ' ');
    std::string out;
    for (std::uint32_t i = begin; i < end; ++i) {
      if (is_blank(after_[i])) {
        out += own.empty() ? std::string(after_[i]) : "\n";
        continue;
      }
      if (!after_[i].starts_with(indent)) return std::nullopt;
      out += own;
      out += after_[i].substr(indent.size());
    }
    return out;
  }

  bool add(const Run& run, std::uint32_t begin, std::uint32_t end, std::optional<std::string> text, const Hunk& hunk) {
    if (!text) return false;
    edits_.push_back({program_.chunks[run.chunk].parts[run.part].chapter, begin, end, std::move(*text), place(hunk)});
    return true;
  }

  std::string insert(const Hunk& hunk) {
    const Run* above = hunk.old_begin > 0 ? run_at(hunk.old_begin - 1) : nullptr;
    const Run* below = run_at(hunk.old_begin);
    const auto after_above = [&] {
      if (!is_body(above)) return false;
      const std::uint32_t last = source_offset(*above, hunk.old_begin - 1);
      const std::uint32_t at = end_of_line(fence(*above).body.source->text, last);
      return add(*above, at, at, as_source(*above, hunk.new_begin, hunk.new_end), hunk);
    };
    const auto before_below = [&] {
      if (!is_body(below)) return false;
      const std::uint32_t at = source_offset(*below, hunk.old_begin);
      return add(*below, at, at, as_source(*below, hunk.new_begin, hunk.new_end), hunk);
    };
    const bool placed = seam_ == Seam::before ? after_above() || before_below() : before_below() || after_above();
    if (placed) return {};
    if (is_body(above) || is_body(below))
      return "these lines have less indentation than the chunk they would belong to";
    return "these lines stand between lines that the tool writes, so no chunk can hold them";
  }

  std::string replace(const Hunk& hunk) {
    std::vector<Piece> pieces;
    for (std::uint32_t line = hunk.old_begin; line < hunk.old_end; ++line) {
      const Run* run = run_at(line);
      if (!pieces.empty() && pieces.back().run == run) ++pieces.back().lines;
      else pieces.push_back({run, line, 1});
    }
    const Run* only = pieces.size() == 1 ? pieces.front().run : nullptr;
    if (only && only->kind == Run::Kind::title) return retitle(*only, hunk);
    for (const Piece& piece : pieces) {
      if (!is_body(piece.run)) {
        return piece.run && piece.run->kind == Run::Kind::title
                   ? "this changes a comment made from a chunk's title together with other lines: edit the title in "
                     "the chapter"
                   : "this changes lines that the tool writes (includes, namespaces, blank lines around chunks)";
      }
    }
    std::uint32_t next = hunk.new_begin;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      const std::uint32_t left = hunk.new_end - next;
      const std::uint32_t share = i + 1 == pieces.size() ? left : std::min(left, piece.lines);
      const std::uint32_t begin = source_offset(*piece.run, piece.line);
      const std::string_view text = fence(*piece.run).body.source->text;
      const std::uint32_t end = end_of_line(text, source_offset(*piece.run, piece.line + piece.lines - 1));
      if (!add(*piece.run, begin, end, as_source(*piece.run, next, next + share), hunk)) {
        return "these lines have less indentation than the chunk they belong to";
      }
      next += share;
    }
    return {};
  }

  /// The comment that a title became reads otherwise: the title should.
  std::string retitle(const Run& run, const Hunk& hunk) {
    const Fence& chunk = fence(run);
    const KeyValue* title = chunk.attributes.find("title");
    const std::string_view mark = line_comment(chunk.language);
    std::string words;
    const auto take = [&](std::string_view line) {
      line = trimmed(line.substr(0, line.find('\n')));
      if (!line.starts_with(mark)) return false;
      const std::string_view rest = trimmed(line.substr(mark.size()));
      words += (words.empty() || rest.empty() ? "" : " ") + std::string(rest);
      return true;
    };
    bool comment = title != nullptr;
    for (std::uint32_t i = run.line - 1; i < hunk.old_begin; ++i) comment = comment && take(before_[i]);
    for (std::uint32_t i = hunk.new_begin; i < hunk.new_end; ++i) comment = comment && take(after_[i]);
    for (std::uint32_t i = hunk.old_end; i < run.line - 1 + run.lines; ++i) comment = comment && take(before_[i]);
    if (!comment || words.empty()) return "this comment comes from the chunk's title, which cannot become these lines";
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
  Diagnostics& diagnostics_;
  std::vector<Edit>& edits_;
  Lines before_, after_;
};

/// A chunk used in several places is edited once: equal edits become one, others are refused.
std::vector<Edit> united(std::vector<Edit> edits, Diagnostics& diagnostics) {
  std::stable_sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) {
    return std::tie(a.chapter, a.begin, a.end) < std::tie(b.chapter, b.begin, b.end);
  });
  std::vector<Edit> out;
  for (Edit& edit : edits) {
    if (!out.empty() && out.back().chapter == edit.chapter) {
      const Edit& last = out.back();
      const bool same_place = last.begin == edit.begin && last.end == edit.end;
      if (same_place && last.text == edit.text) continue;
      if (same_place || edit.begin < last.end) {
        diagnostics.error("stitch-refused", edit.hunk, "the same chapter lines were edited in two ways")
            .note(last.hunk, "this is the other way");
        continue;
      }
    }
    out.push_back(std::move(edit));
  }
  return out;
}

std::vector<ChapterText> apply_edits(const Book& book, const std::vector<Edit>& edits) {
  std::vector<ChapterText> texts;
  std::size_t next = 0;
  for (std::uint32_t c = 0; c < book.chapters.size(); ++c) {
    const Source& source = *book.chapters[c].source;
    ChapterText& chapter = texts.emplace_back(ChapterText{std::string(book.chapters[c].name), source.path, {}});
    std::uint32_t at = 0;
    for (; next < edits.size() && edits[next].chapter == c; ++next) {
      chapter.bytes += source.text.substr(at, edits[next].begin - at);
      chapter.bytes += edits[next].text;
      at = edits[next].end;
    }
    chapter.bytes += source.text.substr(at);
  }
  return texts;
}

/// Whether the edited chapters produce exactly what was asked for. Explains itself at the first line that does not.
bool proves(const Program& program, const std::vector<Output>& outputs, const std::vector<Edited>& edited,
            const std::vector<ChapterText>& texts, Diagnostics& diagnostics) {
  std::map<std::uint32_t, const Source*> wanted;
  for (const Edited& e : edited) wanted[e.output] = e.source;
  const auto explain = [&](std::uint32_t output, std::uint32_t offset, std::string words) {
    const auto found = wanted.find(output);
    const Source* source = found != wanted.end() ? found->second : edited.front().source;
    const auto at = std::min(offset, static_cast<std::uint32_t>(source->text.size()));
    diagnostics.error("stitch-refused", {source, at, at}, std::move(words));
    return false;
  };
  Diagnostics inner;
  const Book book = with_texts(*program.book, texts, inner);
  const Program again = link(book, program.chapters, inner);
  const std::vector<Output> result = produce(again, inner);
  if (inner.failed()) {
    const auto broken = std::find_if(inner.messages().begin(), inner.messages().end(),
                                     [](const Message& m) { return m.severity == Severity::error; });
    return explain(edited.front().output, 0, "with these edits the book is no longer whole: " + broken->text);
  }
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    if (i >= result.size() || result[i].path != outputs[i].path) {
      return explain(i, 0, "with these edits the book would produce other files");
    }
    const auto found = wanted.find(i);
    const std::string_view text = found == wanted.end() ? outputs[i].text : found->second->text;
    if (result[i].text == text) continue;
    const auto differ = std::mismatch(text.begin(), text.end(), result[i].text.begin(), result[i].text.end()).first;
    if (found == wanted.end()) {
      return explain(i, 0,
                     "an edited chunk is also part of " + outputs[i].path + ", which was not edited in the same way");
    }
    return explain(i, static_cast<std::uint32_t>(differ - text.begin()),
                   "the chapters cannot produce this line as it stands");
  }
  return true;
}

}  // namespace

std::vector<ChapterText> stitch(const Program& program, const std::vector<Output>& outputs,
                                const std::vector<Edited>& edited, Diagnostics& diagnostics) {
  Diagnostics first;
  for (const Seam seam : {Seam::before, Seam::after}) {
    Diagnostics attempt;
    std::vector<Edit> edits;
    for (const Edited& e : edited) Placer(program, outputs[e.output], *e.source, seam, attempt, edits).run();
    edits = united(std::move(edits), attempt);
    if (!attempt.failed()) {
      std::vector<ChapterText> texts = apply_edits(*program.book, edits);
      if (proves(program, outputs, edited, texts, attempt)) return texts;
    }
    if (seam == Seam::before) first = std::move(attempt);
  }
  for (const Message& message : first.messages()) {
    diagnostics.error(message.code, message.span, message.text).notes = message.notes;
  }
  return {};
}

}  // namespace tangle
