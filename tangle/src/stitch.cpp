#include "stitch.h"

#include <algorithm>
#include <tuple>

#include "place.h"

namespace tangle {
namespace {

/// A chunk used in several places is edited once: equal edits become one, others are refused.
std::vector<Edit> united(std::vector<Edit> edits, Diagnostics& diagnostics) {
  std::ranges::stable_sort(edits, {}, [](const Edit& edit) { return std::tuple(edit.chapter, edit.begin, edit.end); });
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
  const auto refuse = [&](const Source& source, std::size_t offset, std::string words) {
    diagnostics.error("stitch-refused", span_at(source, std::min(offset, source.text.size()), 0), std::move(words));
    return false;
  };
  const Source& first = *edited.front().source;
  Diagnostics inner;
  const Book book = with_texts(*program.book, texts, inner);
  const Program again = link(book, program.chapters, inner);
  const std::vector<Output> result = produce(again, inner);
  if (inner.failed()) {
    const auto broken = std::ranges::find(inner.messages(), Severity::error, &Message::severity);
    return refuse(first, 0, "with these edits the book is no longer whole: " + broken->text);
  }
  for (std::uint32_t i = 0; i < outputs.size(); ++i) {
    const auto found = std::ranges::find(edited, i, &Edited::output);
    const bool asked = found != edited.end();
    const Source& source = asked ? *found->source : first;
    if (i >= result.size() || result[i].path != outputs[i].path) {
      return refuse(source, 0, "with these edits the book would produce other files");
    }
    const std::string_view text = asked ? source.text : outputs[i].text;
    if (result[i].text == text) continue;
    if (!asked) {
      return refuse(source, 0,
                    "an edited chunk is also part of " + outputs[i].path + ", which was not edited in the same way");
    }
    const auto differ = std::ranges::mismatch(text, result[i].text).in1;
    return refuse(source, static_cast<std::size_t>(differ - text.begin()),
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
    for (const Edited& e : edited) place_edits(program, outputs[e.output], *e.source, seam, attempt, edits);
    edits = united(std::move(edits), attempt);
    if (!attempt.failed()) {
      std::vector<ChapterText> texts = apply_edits(*program.book, edits);
      if (proves(program, outputs, edited, texts, attempt)) return texts;
    }
    if (seam == Seam::before) first = std::move(attempt);
  }
  diagnostics.append(std::move(first));
  return {};
}

}  // namespace tangle
