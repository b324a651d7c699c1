#include "expand.h"

#include <algorithm>
#include <cstring>

#include "language.h"
#include "text.h"

namespace tangle {
namespace {

constexpr std::size_t widest_comment = 100;  // columns

std::string_view first_line(std::string_view body) {
  if (body.starts_with("#!")) body.remove_prefix(std::min(body.find('\n'), body.size()));
  while (body.starts_with('\n')) body.remove_prefix(1);
  return trimmed(body.substr(0, body.find('\n')));
}

bool opens_with_documentation(std::string_view body) {
  const std::string_view line = first_line(body);
  return line.starts_with("///") || line.starts_with("/**");
}

/// A comment that already says what the title would. Documentation of the first declaration is another matter.
bool opens_with_comment(std::string_view body, std::string_view mark) {
  const std::string_view line = first_line(body);
  const bool comment = line.starts_with(mark) || (mark == "//" && line.starts_with("/*"));
  return comment && !(mark == "//" && opens_with_documentation(body));
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// `title` as a sentence in comment lines of at most 100 columns. Returns how many lines.
std::uint32_t append_comment(std::string& out, std::string_view title, std::string_view mark, std::string_view indent) {
  std::uint32_t lines = 0;
  std::size_t used = widest_comment;
  for (title = trimmed(title); !title.empty();) {
    const std::size_t end = std::min(title.find(' '), title.size());
    std::string word(title.substr(0, end));
    title = trimmed(title.substr(end));
    if (title.empty() && std::string_view(".!?:").find(word.back()) == std::string_view::npos) word += '.';
    if (used + 1 + columns(word) > widest_comment) {
      out += concat(lines++ > 0 ? "\n" : "", indent, mark);
      used = columns(indent) + mark.size();
    }
    out += concat(' ', word);
    used += 1 + columns(word);
  }
  if (lines > 0) out += '\n';
  return lines;
}

}  // namespace

void Expander::add(Run run, std::uint32_t lines) {
  if (lines == 0) return;
  run.line = next_line_;
  run.lines = lines;
  next_line_ += lines;
  output_.map.push_back(run);
}

void Expander::frame(std::string_view text) {
  output_.text += text;
  add({}, static_cast<std::uint32_t>(std::count(text.begin(), text.end(), '\n')));
}

void Expander::blank_line() {
  if (!output_.text.empty() && !output_.text.ends_with("\n\n")) frame("\n");
}

void Expander::chunk(std::uint32_t index, const std::string& indent, bool opens_file) {
  const Chunk& chunk = program_.chunks[index];
  for (std::uint32_t p = chunk.first_live; p < chunk.parts.size(); ++p) {
    part(index, p, indent, opens_file && p == chunk.first_live);
  }
}

void Expander::listing(const Fence& fence) {
  const auto indent = static_cast<std::int32_t>(fence.lines.indent);
  const Run run{0, fence.lines.body_lines, Run::Kind::frame, Run::no_part,
                0, fence.body_line(),      fence.body.begin, -indent};
  copy(run, fence.body.text(), {}, fence.lines.indent);
}

/// Writes the title comment of a part, unless the part opens with a comment or cannot bear one here.
bool Expander::title(std::uint32_t chunk, std::uint32_t index, const std::string& indent) {
  const Fence& fence = program_.fence(program_.chunks[chunk].parts[index]);
  const std::string_view mark = line_comment(fence.language);
  const bool continues_line = output_.text.ends_with("\\\n");
  if (fence.plain || fence.title().empty() || mark.empty() || continues_line) return false;
  if (opens_with_comment(fence.body.text(), mark)) return false;
  if (!output_.map.empty() && output_.map.back().kind == Run::Kind::title) blank_line();
  Run run{0, 0, Run::Kind::title, chunk, index, fence.lines.line, fence.lines.open, 0};
  add(run, append_comment(output_.text, fence.title(), mark, indent));
  if (opens_with_documentation(fence.body.text())) blank_line();
  return true;
}

void Expander::part(std::uint32_t chunk, std::uint32_t index, const std::string& indent, bool opens_file) {
  const Fence& fence = program_.fence(program_.chunks[chunk].parts[index]);
  const std::string_view text = fence.body.source->text;
  std::uint32_t at = fence.body.begin;
  std::uint32_t number = 0;
  const auto copy_to = [&](std::uint32_t end, std::uint32_t end_number) {
    const std::int32_t delta = static_cast<std::int32_t>(indent.size()) - static_cast<std::int32_t>(fence.lines.indent);
    const Run run{0, end_number - number, Run::Kind::body, chunk, index, fence.body_line() + number, at, delta};
    if (at < end) copy(run, text.substr(at, end - at), indent, fence.lines.indent);
    at = end;
    number = end_number;
  };
  const auto next_line = [&](std::size_t offset) { return static_cast<std::uint32_t>(skip_lines(text, offset, 1)); };
  if (opens_file && fence.body.text().starts_with("#!")) copy_to(next_line(at), 1);
  const bool continues = index > program_.chunks[chunk].first_live;
  if (continues && !fence.plain && !fence.title().empty() && !output_.text.ends_with("\\\n")) blank_line();
  if (title(chunk, index, indent) && opens_file) blank_line();
  for (const Reference& reference : fence.references) {
    copy_to(reference.line, reference.number);
    const std::string_view deeper = text.substr(reference.span.begin - reference.indent, reference.indent);
    this->chunk(program_.by_id.at(reference.id), concat(indent, deeper));
    at = next_line(reference.span.end);
    ++number;
  }
  copy_to(fence.body.end, fence.lines.body_lines);
}

/// Copies whole lines, with the fence's own indentation taken off and the place's put on.
void Expander::copy(const Run& from, std::string_view lines, const std::string& indent, std::uint32_t strip) {
  add(from, from.lines);
  std::string& out = output_.text;
  if (indent.empty() && strip == 0) {
    out += lines;
    return;
  }
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end);
    line.remove_prefix(std::min<std::size_t>(strip, line.find_first_not_of(' ')));
    const bool blank = line.find_first_not_of(" \t\n") == std::string_view::npos;
    if (!blank) out += indent;
    out += blank ? "\n" : line;
  }
}

}  // namespace tangle
