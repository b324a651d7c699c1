#include "document.h"

#include <algorithm>
#include <cstring>

#include "language.h"
#include "text.h"

namespace tangle {
namespace {

constexpr std::uint32_t long_chunk = 60;
constexpr std::size_t largest_chapter = 64u << 20;  // offsets have 32 bits

/// Refuses bytes that would make places or outputs ambiguous. False when reading on makes no sense.
bool check_bytes(const Source& source, Diagnostics& diagnostics) {
  const auto at = [&](std::size_t offset, std::size_t length) {
    return Span{&source, static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset + length)};
  };
  const std::string_view text = source.text;
  if (text.size() > largest_chapter) {
    diagnostics.error("too-large", at(0, 0), "the file is larger than 64 MiB");
    return false;
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    diagnostics.error("byte-order-mark", at(0, 3), "the file begins with a byte order mark; remove it");
  }
  if (const std::size_t bad = first_invalid_utf8(text); bad != std::string_view::npos) {
    diagnostics.error("invalid-utf8", at(bad, 1), "this byte is not valid UTF-8");
    return false;
  }
  if (const void* nul = std::memchr(text.data(), 0, text.size())) {
    const auto offset = static_cast<std::size_t>(static_cast<const char*>(nul) - text.data());
    diagnostics.error("control-character", at(offset, 1), "the file holds a NUL byte");
    return false;
  }
  if (const std::size_t cr = text.find('\r'); cr != std::string_view::npos) {
    diagnostics.error("crlf", at(cr, 1), "the file has carriage returns; lines end with a line feed alone");
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
  document.front_span = {document.source, 4, std::max(4u, static_cast<std::uint32_t>(close + 1))};
  document.front = parse_yaml(document.front_span, diagnostics);
  const std::size_t begin = close + 5;
  const auto lines = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(begin), '\n');
  return {static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(lines + 1)};
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
  fence.attributes = parse_attributes({fence.info.source, at, fence.info.end}, diagnostics);
}

/// Looks at each line of a chunk: references, indentation, tabs.
class Body {
 public:
  Body(Fence& fence, Diagnostics& diagnostics) : fence_(fence), diagnostics_(diagnostics) {}

  void run() {
    const std::string_view text = fence_.body.source->text;
    std::uint32_t number = 0;
    for (std::uint32_t at = fence_.body.begin; at < fence_.body.end; ++number) {
      const void* found = std::memchr(text.data() + at, '\n', fence_.body.end - at);
      const std::uint32_t eol =
          found ? static_cast<std::uint32_t>(static_cast<const char*>(found) - text.data()) : fence_.body.end;
      line(at, eol, number);
      at = eol + 1;
    }
  }

 private:
  void line(std::uint32_t begin, std::uint32_t eol, std::uint32_t number) {
    const std::string_view text = fence_.body.source->text;
    std::uint32_t at = begin;
    while (at < eol && text[at] == ' ') ++at;
    if (at == eol) return;
    if (at - begin < fence_.lines.indent && !shallow_) {
      shallow_ = true;
      diagnostics_.error("left-of-fence", {fence_.body.source, begin, at + 1}, "this line stands left of its fence")
          .note(fence_.info, "the fence is indented by " + std::to_string(fence_.lines.indent) + " here");
    }
    if (text[at] == '\t') {
      tab_line(begin, at);
      while (at < eol && (text[at] == ' ' || text[at] == '\t')) ++at;
    } else if (at - begin > fence_.lines.indent && spaces_ == nowhere) {
      spaces_ = begin;
    }
    if (eol - at > 4 && text[at] == '<' && text[at + 1] == '<') reference(begin, at, eol, number);
  }

  void tab_line(std::uint32_t begin, std::uint32_t at) {
    const bool mixed = at - begin > fence_.lines.indent || spaces_ != nowhere;
    if (!mixed || told_) return;
    told_ = true;
    Message& message = diagnostics_.error("mixed-indentation", {fence_.body.source, at, at + 1},
                                          "tabs and spaces are mixed in the indentation of one chunk");
    if (spaces_ != nowhere) message.note({fence_.body.source, spaces_, spaces_ + 1}, "this line begins with spaces");
  }

  void reference(std::uint32_t begin, std::uint32_t at, std::uint32_t eol, std::uint32_t number) {
    const std::string_view text = fence_.body.source->text;
    std::uint32_t last = eol;
    while (text[last - 1] == ' ' || text[last - 1] == '\t') --last;
    if (last - at < 5 || text[last - 1] != '>' || text[last - 2] != '>') return;
    const std::string_view id = text.substr(at + 2, last - at - 4);
    if (id.find_first_of(" \t<>\"'(),;:") != std::string_view::npos) return;
    const Span span{fence_.body.source, at, last};
    if (!is_id(id)) {
      diagnostics_.error("bad-id", span,
                         "this line looks like a reference, but \"" + printable(id) + "\" is no chunk id");
      return;
    }
    fence_.references.push_back({id, span, begin, number, at - begin - std::min(fence_.lines.indent, at - begin)});
  }

  static constexpr std::uint32_t nowhere = ~0u;
  Fence& fence_;
  Diagnostics& diagnostics_;
  std::uint32_t spaces_ = nowhere;  // first line indented with spaces
  bool told_ = false, shallow_ = false;
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
                        "this chunk has " + std::to_string(lines.body_lines) +
                            " lines; a chunk is one thought, at most about 40 (" + std::to_string(long_chunk) +
                            " before this warning)");
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
