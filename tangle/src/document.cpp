#include "document.h"

#include <algorithm>
#include <utility>

#include "language.h"
#include "text.h"

namespace tangle {
namespace {

constexpr std::uint32_t long_chunk = 60;
constexpr std::size_t largest_chapter = 64u << 20;  // offsets have 32 bits

/// Refuses bytes that would make places or outputs ambiguous. False when reading on makes no sense.
bool check_bytes(const Source& source, Diagnostics& diagnostics) {
  const std::string_view text = source.text;
  const auto refuse = [&](std::string_view code, std::size_t at, std::size_t length, std::string words) {
    diagnostics.error(code, span_at(source, at, length), std::move(words));
    return false;
  };
  if (text.size() > largest_chapter) return refuse("too-large", 0, 0, "the file is larger than 64 MiB");
  if (text.starts_with("\xEF\xBB\xBF")) {
    refuse("byte-order-mark", 0, 3, "the file begins with a byte order mark; remove it");
  }
  const std::size_t bad = first_invalid_utf8(text), nul = text.find('\0'), cr = text.find('\r');
  if (bad != std::string_view::npos) return refuse("invalid-utf8", bad, 1, "this byte is not valid UTF-8");
  if (nul != std::string_view::npos) return refuse("control-character", nul, 1, "the file holds a NUL byte");
  if (cr != std::string_view::npos) {
    refuse("crlf", cr, 1, "the file has carriage returns; lines end with a line feed alone");
  }
  return true;
}

/// Reads `---` … `---` at the top. Returns where the chapter's text begins, as offset and line.
std::pair<std::uint32_t, std::uint32_t> read_front(Document& document, Diagnostics& diagnostics) {
  const std::string_view text = document.source->text;
  if (!text.starts_with("---\n")) return {0, 1};
  const std::size_t close = text.starts_with("---\n---\n") ? 3 : text.find("\n---\n", 3);
  if (close == std::string_view::npos) {
    diagnostics.error("unclosed-front-matter", {document.source, 0, 3},
                      "the front matter is not closed: a line \"---\" is missing");
    return {0, 1};
  }
  document.has_front = true;
  document.front = parse_yaml(span_at(*document.source, 4, std::max<std::size_t>(close, 3) - 3), diagnostics);
  const auto begin = static_cast<std::uint32_t>(close + 5);
  return {begin, locate(*document.source, begin).line};
}

/// Splits the info string into language and attributes.
void read_info(Fence& fence, Diagnostics& diagnostics) {
  const std::string_view info = fence.info.text();
  const std::size_t brace = info.find('{');
  fence.language = trimmed(info.substr(0, brace));
  if (brace == std::string_view::npos) {
    fence.language = fence.language.substr(0, fence.language.find_first_of(" \t"));
    return;
  }
  if (info.starts_with("{=")) return;  // Pandoc's raw blocks
  const std::uint32_t at = fence.info.begin + static_cast<std::uint32_t>(brace);
  if (fence.language.empty()) {
    diagnostics
        .error("no-language", {fence.info.source, at, fence.info.end},
               "the language word comes first, before the attributes")
        .help("write ```cpp {#id}: then the forge highlights the chunk");
    fence.faulty = true;
  } else if (info[brace - 1] != ' ' && info[brace - 1] != '\t') {
    diagnostics.error("no-space", {fence.info.source, at, at + 1},
                      "a space is missing between the language and the attributes");
  } else if (fence.language.find_first_of(" \t") != std::string_view::npos) {
    diagnostics.error("no-language", fence.info, "one word names the language, then come the attributes");
  }
  const bool names_a_bench = fence.language == "bench";
  fence.attributes = parse_attributes({fence.info.source, at, fence.info.end}, names_a_bench, diagnostics);
}

/// Looks at each line of a chunk: references, indentation, tabs.
class Body {
 public:
  Body(Fence& fence, Diagnostics& diagnostics)
      : fence_(fence), source_(fence.body.source), text_(source_->text), diagnostics_(diagnostics) {}

  void run() {
    for (std::uint32_t at = fence_.body.begin; at < fence_.body.end; ++number_) {
      const std::size_t found = text_.find('\n', at);
      const std::uint32_t eol = static_cast<std::uint32_t>(std::min<std::size_t>(found, fence_.body.end));
      line(at, eol);
      at = eol + 1;
    }
  }

 private:
  void line(std::uint32_t begin, std::uint32_t eol) {
    std::uint32_t at = begin;
    while (at < eol && text_[at] == ' ') ++at;
    if (at == eol) return;
    if (at - begin < fence_.lines.indent && !shallow_) {
      shallow_ = true;
      diagnostics_.error("left-of-fence", {source_, begin, at + 1}, "this line stands left of its fence")
          .note(fence_.info, "the fence is indented by " + std::to_string(fence_.lines.indent) + " here");
    }
    const bool deeper = at - begin > fence_.lines.indent;
    if (text_[at] == '\t') {
      if (deeper || spaces_.source) mixed(at);
      while (at < eol && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    } else if (deeper && !spaces_.source) {
      spaces_ = {source_, begin, begin + 1};
    }
    if (text_.substr(at, eol - at).starts_with("<<")) reference(begin, at, eol);
  }

  void mixed(std::uint32_t at) {
    if (std::exchange(mixed_, true)) return;
    Message& message = diagnostics_.error("mixed-indentation", {source_, at, at + 1},
                                          "tabs and spaces are mixed in the indentation of one chunk");
    if (spaces_.source) message.note(spaces_, "this line begins with spaces");
  }

  void reference(std::uint32_t begin, std::uint32_t at, std::uint32_t eol) {
    const std::string_view line = trimmed(text_.substr(at, eol - at));
    if (line.size() < 5 || !line.ends_with(">>")) return;
    const std::string_view id = line.substr(2, line.size() - 4);
    if (id.find_first_of(" \t<>\"'(),;:") != std::string_view::npos) return;
    const Span span = span_at(*source_, at, line.size());
    if (!is_id(id)) {
      diagnostics_.error("bad-id", span,
                         "this line looks like a reference, but " + quoted(printable(id)) + " is no chunk id");
      return;
    }
    fence_.references.push_back({id, span, begin, number_, at - begin - std::min(fence_.lines.indent, at - begin)});
  }

  Fence& fence_;
  const Source* source_;
  std::string_view text_;
  Diagnostics& diagnostics_;
  std::uint32_t number_ = 0;
  Span spaces_;  // the first line indented with spaces
  bool mixed_ = false, shallow_ = false;
};

/// Refuses fences that Markdown readers would end or read in another way than the author meant.
void check_shape(const Fence& fence, Diagnostics& diagnostics) {
  const bool chunk = !fence.attributes.span.text().empty();
  const Span open{fence.info.source, fence.lines.open, std::max(fence.info.end, fence.lines.open + 3)};
  if (fence.lines.broken) {
    diagnostics
        .error("backtick-in-info", open,
               "a backtick in the info string makes Markdown read this line as inline code, not as a fence")
        .help("leave the backtick out, or fence with ~~~");
  } else if (fence.lines.how == FenceEnd::file) {
    diagnostics.error("unterminated-fence", open, "this fence is never closed");
  } else if (chunk && fence.lines.quoted) {
    diagnostics.error("quoted-chunk", open, "a chunk cannot stand in a block quote");
  } else if (fence.lines.how == FenceEnd::container && !fence.lines.quoted) {
    diagnostics.error("unterminated-fence", open, "this fence is not closed before its list item ends")
        .note({fence.info.source, fence.lines.end, fence.lines.end + 1}, "the item ends before this line");
  } else if (chunk && fence.lines.after_marker) {
    diagnostics.error("chunk-after-marker", open, "a chunk begins on a line of its own, not behind a list marker");
  }
}

Fence read_fence(const Source& source, const FenceLines& lines, Diagnostics& diagnostics) {
  Fence fence;
  fence.lines = lines;
  fence.info = {&source, lines.info_begin, lines.info_end};
  fence.body = {&source, lines.body_begin, lines.body_end};
  if (!lines.broken) read_info(fence, diagnostics);
  check_shape(fence, diagnostics);
  classify(fence, diagnostics);
  const bool woven = fence.role != Role::listing && fence.role != Role::sketch && fence.role != Role::output &&
                     fence.role != Role::table;
  if (!woven) return fence;
  Body(fence, diagnostics).run();
  if (lines.body_lines > long_chunk) {
    diagnostics.warning("long-chunk", fence.place(),
                        concat("this chunk has ", std::to_string(lines.body_lines),
                               " lines; a chunk is one thought, at most about 40 (", std::to_string(long_chunk),
                               " before this warning)"));
  }
  return fence;
}

}  // namespace

Document parse_document(const Source& source, std::string_view name, Diagnostics& diagnostics) {
  Document document;
  document.source = &source;
  document.name = name;
  if (!check_bytes(source, diagnostics)) return document;
  const auto [offset, line] = read_front(document, diagnostics);
  const std::vector<FenceLines> fences = scan_fences(source.text, offset, line);
  document.fences.reserve(fences.size());
  for (const FenceLines& lines : fences) {
    document.fences.push_back(read_fence(source, lines, diagnostics));
  }
  return document;
}

}  // namespace tangle
