#include "code.h"

#include "api.h"
#include "diff.h"
#include "highlight.h"
#include "html.h"

namespace weave {
namespace {

constexpr int deepest = 6;  // references within references that expand in place

std::string link(std::string_view href, std::string_view words) {
  return "<a href=\"" + escaped(href) + "\">" + escaped(words) + "</a>";
}

std::string_view role_word(std::string_view role) {
  if (role == "test") return "test";
  if (role == "bench") return "bench";
  if (role == "example") return "example";
  if (role == "fail") return "must not compile";
  if (role == "exercise") return "exercise";
  if (role == "solution") return "solution";
  if (role == "output") return "output";
  if (role == "sketch") return "sketch";
  return {};
}

const char* element_of(TokenKind kind) {
  switch (kind) {
    case TokenKind::comment: return "i";
    case TokenKind::keyword: return "b";
    case TokenKind::string: return "span";
    default: return nullptr;
  }
}

}  // namespace

std::string page_of_file(std::string_view path) { return "code/" + std::string(path) + ".html"; }

std::string page_of_source(std::string_view path) { return "source/" + std::string(path) + ".html"; }

std::string place_of(const Book& book, const Chunk& chunk, std::uint32_t part) {
  return book.chapters[chunk.parts.at(part).chapter].page() + "#" + anchor_of(chunk, part);
}

/// The API's page for what `word` declares in a line.
std::string_view CodeWriter::documented(const Links& links, std::uint32_t line, std::string_view word) const {
  return links.chapter != nullptr ? api_.declared_in(*links.chapter, line, word)
                                  : api_.declared(links.output, line, word);
}

/// The name that `word` refers to: as clang resolved it, or else as the characters around it allow.
const Name* CodeWriter::meant(const Links& links, std::uint32_t line, std::uint32_t offset, std::string_view word,
                              char before, char after) const {
  const Meaning* meaning =
      links.chapter != nullptr
          ? meanings_.in_chapter(static_cast<std::uint32_t>(links.chapter - book_.chapters.data()), line, offset, word)
          : meanings_.in_output(links.output, line, offset, word);
  if (meaning == nullptr) return names_.find(word, before, after);
  return meaning->output == Fence::none ? nullptr : names_.declared(meaning->output, meaning->line, word);
}

void CodeWriter::highlighted(std::string& out, std::string_view code, std::string_view language,
                             const Links* links) const {
  if (language.empty()) return escape_to(out, code);
  const std::vector<Token> tokens = lex(code, language);
  std::set<std::string, std::less<>> own;
  auto& linked = links != nullptr && links->seen != nullptr ? *links->seen : own;
  std::size_t at = 0, counted = 0, line_begin = 0;
  std::uint32_t line = links != nullptr ? links->line : 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Token token = tokens[i];
    escape_to(out, code.substr(at, token.begin - at));
    at = token.begin;
    const bool character = code[token.begin] == '\'' && is_cpp(language);  // too small to need a colour
    const char* element = character ? nullptr : element_of(token.kind);
    if (element != nullptr) {
      // Neighbours of one kind share an element.
      while (i + 1 < tokens.size() && tokens[i + 1].kind == token.kind && token.kind != TokenKind::string &&
             code.substr(token.end, tokens[i + 1].begin - token.end)
                     .find_first_not_of(token.kind == TokenKind::comment ? " \n" : " ") == std::string_view::npos)
        token.end = tokens[++i].end;
      out.append("<").append(element).append(token.kind == TokenKind::string ? " class=\"s\">" : ">");
      escape_to(out, token.of(code));
      out.append("</").append(element).append(">");
      at = token.end;
      continue;
    }
    const std::string_view word = token.of(code);
    if (token.kind == TokenKind::include && links != nullptr) {
      const std::string_view path = word.substr(1, word.size() < 2 ? 0 : word.size() - 2);
      if (book_.output_by_path.contains(path)) {
        out += "\"" + link(relative(links->page, page_of_file(path)), path) + "\"";
        at = token.end;
        continue;
      }
    }
    if (token.kind == TokenKind::name && links != nullptr) {
      for (; counted < token.begin; ++counted)
        if (code[counted] == '\n') line_begin = counted + 1, ++line;
      const std::size_t indent = code.find_first_not_of(' ', line_begin);
      const auto offset = static_cast<std::uint32_t>(token.begin - std::min(indent, token.begin));
      const std::string_view place = documented(*links, line, word);
      if (!place.empty() && linked.emplace(place).second) {
        out += "<a class=\"d\"" + link(relative(links->page, place), word).substr(2);
        at = token.end;
        continue;
      }
      const char before = token.begin > 0 ? code[token.begin - 1] : ' ';
      const char after = token.end < code.size() ? code[token.end] : ' ';
      const Name* name = meant(*links, line, offset, word, before, after);
      if (name != nullptr && name->chunk != links->chunk) {
        if (links->uses != nullptr && links->chunk != Fence::none) (*links->uses)[name->qualified].insert(links->chunk);
        // A name and not its place: two names of one chunk are each worth a link.
        if (linked.insert(name->qualified).second) {
          out += link(relative(links->page, place_of(book_, book_.chunks[name->chunk], name->part)), word);
          at = token.end;
          continue;
        }
      }
    }
    escape_to(out, word);
    at = token.end;
  }
  escape_to(out, code.substr(at));
}

void CodeWriter::reference(std::string& out, const Reference& reference, std::string_view line, const std::string& page,
                           int depth) const {
  const Chunk* chunk = book_.chunk(reference.id);
  const std::size_t indent = line.find("<<");
  if (chunk == nullptr || indent == std::string_view::npos) {
    escape_to(out, line);
    return;
  }
  out += "</code></pre><div class=\"ref\" style=\"--indent:" + std::to_string(indent) + "\"><details><summary>";
  escape_to(out, book_.title_of(*chunk));
  out += "</summary>";
  if (depth < deepest) {
    for (std::uint32_t p = 0; p < chunk->parts.size(); ++p) {
      if (!chunk->parts[p].live) continue;
      const Chapter& chapter = book_.chapters[chunk->parts[p].chapter];
      out += "<pre><code>";
      body(out, chapter, book_.fence(chunk->parts[p]), page, nullptr, depth + 1);
      out += "</code></pre>";
    }
  }
  out += "</details>";
  if (depth == 0)
    out += "<a class=\"go\" href=\"" + escaped(relative(page, place_of(book_, *chunk, 0))) +
           "\" aria-label=\"Go to: " + escaped(book_.title_of(*chunk)) + "\">→</a>";
  out += "</div><pre><code>";
}

void CodeWriter::body(std::string& out, const Chapter& chapter, const Fence& fence, const std::string& page,
                      const Links* links, int depth) const {
  const std::string text = body_of(chapter, fence);
  std::size_t at = std::min(text.find_first_not_of('\n'), text.size()), next = 0;
  std::size_t begin = at;  // of the code that has not been written yet
  std::uint32_t line = fence.line + 1 + static_cast<std::uint32_t>(at), begin_line = line;
  const auto write = [&](std::string_view code) {
    Links here = links != nullptr ? *links : Links{};
    here.line = begin_line;
    highlighted(out, code, depth == 0 ? fence.language : std::string_view{}, links != nullptr ? &here : nullptr);
  };
  for (; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (next < fence.references.size() && fence.references[next].line == line) {
      write(std::string_view(text).substr(begin, at - begin));
      while (!out.empty() && out.back() == '\n') out.pop_back();
      reference(out, fence.references[next++], std::string_view(text).substr(at, end - at), page, depth);
      begin = end + 1;
      begin_line = line + 1;
    }
    at = end + 1;
  }
  if (begin < text.size()) write(std::string_view(text).substr(begin));
}

std::string CodeWriter::caption(const Fence& fence, const std::string& page) const {
  std::string out = "<figcaption>";
  if (const std::string_view word = role_word(fence.role); !word.empty())
    out += "<span class=\"role\">" + std::string(word) + "</span> ";
  if (fence.chunk == Fence::none) return out + "<strong>" + escaped(fence.title) + "</strong></figcaption>";
  const Chunk& chunk = book_.chunks[fence.chunk];
  out += "<a class=\"title\" href=\"#" + anchor_of(chunk, fence.part) + "\">" + escaped(book_.title_of(chunk)) + "</a>";
  out += " <span class=\"where\">";
  if (!chunk.landings.empty()) {
    const Output& output = book_.outputs[chunk.landings.front().output];
    out += link(relative(page, page_of_file(output.path) + "#L" + std::to_string(chunk.landings.front().line)),
                output.path);
  }
  if (chunk.parts.size() > 1)
    out += " · part " + std::to_string(fence.part + 1) + " of " + std::to_string(chunk.parts.size());
  return out + "</span></figcaption>";
}

std::string CodeWriter::footer(const Fence& fence, const std::string& page) const {
  const Chunk& chunk = book_.chunks[fence.chunk];
  std::string out;
  const auto add = [&](const std::string& words) { out += (out.empty() ? "" : " · ") + words; };
  const auto part_link = [&](std::uint32_t part, std::string_view words) {
    const Chapter& there = book_.chapters[chunk.parts[part].chapter];
    std::string title(words);
    if (there.page() != page) title += ", in " + there.title;
    add(link(relative(page, place_of(book_, chunk, part)), title));
  };
  if (fence.replace && fence.part > 0) part_link(fence.part - 1, "replaces this");
  else if (fence.part > 0) part_link(fence.part - 1, "continues ↑");
  if (fence.part + 1 < chunk.parts.size())
    part_link(fence.part + 1, book_.fence(chunk.parts[fence.part + 1]).replace ? "replaced later" : "continued ↓");
  if (fence.part == 0) {
    for (std::size_t i = 0; i < chunk.used_by.size(); ++i) {
      const Chunk& user = book_.chunks[chunk.used_by[i]];
      const std::string used = link(relative(page, place_of(book_, user, 0)), book_.title_of(user));
      i == 0 ? add("used in " + used) : static_cast<void>(out += ", " + used);
    }
  }
  return out.empty() ? out : "<p class=\"uses\">" + out + "</p>";
}

std::string CodeWriter::changes(const Fence& fence) const {
  const Chunk& chunk = book_.chunks[fence.chunk];
  std::uint32_t first = fence.part;
  while (first > 0 && !book_.fence(chunk.parts[first - 1]).replace) --first;
  if (first > 0) --first;
  std::string before;
  for (std::uint32_t p = first; p < fence.part; ++p)
    before += body_of(book_.chapters[chunk.parts[p].chapter], book_.fence(chunk.parts[p])) + "\n";
  const std::string after = body_of(book_.chapters[chunk.parts[fence.part].chapter], fence) + "\n";
  const tangle::Lines old_lines = tangle::lines_of(before), new_lines = tangle::lines_of(after);
  std::string out = "<details class=\"changes\"><summary>What changed</summary><pre><code>";
  std::uint32_t at = 0;
  for (const tangle::Hunk& hunk : tangle::diff(old_lines, new_lines)) {
    for (; at < hunk.new_begin; ++at) escape_to(out.append("  "), new_lines[at]);
    for (std::uint32_t i = hunk.old_begin; i < hunk.old_end; ++i) out += "<del>- " + escaped(old_lines[i]) + "</del>";
    for (; at < hunk.new_end; ++at) out += "<ins>+ " + escaped(new_lines[at]) + "</ins>";
  }
  for (; at < new_lines.size(); ++at) escape_to(out.append("  "), new_lines[at]);
  return out + "</code></pre></details>";
}

std::string CodeWriter::card(const Chapter& chapter, const Fence& fence) {
  const std::string page = chapter.page();
  if (fence.id.empty() && fence.title.empty()) return listing(body_of(chapter, fence), fence.language);
  const bool chunk = fence.chunk != Fence::none;
  const std::string anchor = chunk ? anchor_of(book_.chunks[fence.chunk], fence.part) : fence.id;
  Links links{page, fence.chunk, &chapter};
  links.uses = &uses_;
  std::set<std::string, std::less<>> seen;
  links.seen = &seen;
  std::string code;
  body(code, chapter, fence, page, &links, 0);
  std::string out = "<figure class=\"chunk is-" + escaped(fence.role) + "\"";
  if (!anchor.empty()) out += " id=\"" + anchor + "\"";
  out += ">" + caption(fence, page);
  if (fence.role == "solution") out += "<details><summary>Show the solution</summary>";
  out +=
      fence.references.empty()
          ? "<pre class=\"code\" tabindex=\"0\" data-pagefind-ignore><code>" + code + "</code></pre>"
          : "<div class=\"code\" tabindex=\"0\" role=\"group\" aria-label=\"Code\" data-pagefind-ignore><pre><code>" +
                code + "</code></pre></div>";
  // Where code breaks off for a reference, an empty element would stand.
  for (const std::string_view empty : {"<pre><code></code></pre>"})
    for (std::size_t at = out.find(empty); at != std::string::npos; at = out.find(empty)) out.erase(at, empty.size());
  if (chunk && fence.replace) out += changes(fence);
  if (fence.role == "solution") out += "</details>";
  if (chunk) out += footer(fence, page);
  return out + "</figure>";
}

std::string CodeWriter::listing(std::string_view body, std::string_view language) const {
  std::string out = "<pre class=\"code listing\" tabindex=\"0\"><code>";
  highlighted(out, body, language, nullptr);
  return out + "</code></pre>";
}

std::string CodeWriter::file(const Output& output, std::string_view bytes, std::string_view page) const {
  Links links{page, Fence::none, nullptr, static_cast<std::uint32_t>(&output - book_.outputs.data())};
  std::string out = "<div class=\"file\">";
  std::uint32_t line = 1;
  std::size_t at = 0;
  std::size_t next = 0;
  while (at < bytes.size()) {
    // The lines up to the next change of chunk stand together, beside the name of where they come from.
    while (next < output.runs.size() && line >= output.runs[next].line + output.runs[next].lines) ++next;
    const Run* run = next < output.runs.size() && line >= output.runs[next].line ? &output.runs[next] : nullptr;
    const std::uint32_t last = run != nullptr ? run->line + run->lines : line + 1;
    const Chunk* chunk = run != nullptr && run->chunk != Fence::none ? &book_.chunks[run->chunk] : nullptr;
    std::string numbers, href;
    if (chunk != nullptr) href = relative(page, place_of(book_, *chunk, run->part));
    const std::size_t begin = at;
    links.line = line;
    for (; line < last && at < bytes.size(); ++line) {
      const std::string number = std::to_string(line);
      numbers += "<a id=\"L" + number + "\" href=\"" + (href.empty() ? "#L" + number : escaped(href)) + "\">" + number +
                 "</a>\n";
      at = std::min(bytes.find('\n', at), bytes.size()) + 1;
    }
    at = std::min(at, bytes.size());
    out += "<div class=\"run\"><pre class=\"lines\">" + numbers + "</pre><pre><code>";
    highlighted(out, bytes.substr(begin, at - begin), language_of(output.path), &links);
    out += "</code></pre>";
    if (chunk != nullptr && run->body)
      out += "<a class=\"origin\" href=\"" + escaped(href) + "\">" + escaped(book_.title_of(*chunk)) + "</a>";
    out += "</div>";
  }
  return out + "</div>";
}

std::string CodeWriter::plain_file(std::string_view path, std::string_view bytes) const {
  std::string numbers;
  std::size_t lines = 0;
  for (std::size_t at = 0; at < bytes.size(); at = std::min(bytes.find('\n', at), bytes.size()) + 1) {
    const std::string number = std::to_string(++lines);
    numbers += "<a id=\"L" + number + "\" href=\"#L" + number + "\">" + number + "</a>\n";
  }
  std::string out = "<div class=\"file\"><div class=\"run\"><pre class=\"lines\">" + numbers + "</pre><pre><code>";
  highlighted(out, bytes, language_of(path), nullptr);
  return out + "</code></pre></div></div>";
}

}  // namespace weave
