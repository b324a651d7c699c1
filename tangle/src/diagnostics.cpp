#include "diagnostics.h"

#include <algorithm>
#include <iterator>

#include "json.h"
#include "text.h"

namespace tangle {
namespace {

constexpr std::size_t most_messages = 100;

std::string_view word(Severity severity) { return severity == Severity::error ? "error" : "warning"; }

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

std::string place(const Span& span) {
  if (!span.source) return "tangle: ";
  const LineColumn at = locate(*span.source, span.begin);
  return span.source->path + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": ";
}

/// The source line and a caret under the first byte of the span, tildes under the rest of it.
std::string caret(const Span& span) {
  constexpr std::uint32_t widest = 200;
  constexpr std::size_t margin = 5;
  if (!span.source) return {};
  const Span line = line_around(*span.source, span.begin);
  if (span.begin - line.begin > widest) return {};
  const Span shown{span.source, line.begin, std::min(line.end, line.begin + widest)};
  std::string number = std::to_string(locate(*span.source, span.begin).line);
  if (number.size() < margin) number.insert(0, margin - number.size(), ' ');
  std::string out = number + " | " + printable(shown.text()) + "\n" + std::string(number.size(), ' ') + " | ";
  for (const char c : printable(shown.text().substr(0, span.begin - line.begin))) {
    if (begins_character(c)) out += c == '\t' ? '\t' : ' ';
  }
  out += '^';
  for (std::uint32_t i = span.begin + 1; i < std::min(span.end, shown.end); ++i) {
    if (begins_character(span.source->text[i])) out += '~';
  }
  return out + '\n';
}

std::string as_gcc(const Message& message) {
  std::string out = concat(place(message.span), word(message.severity), ": ", message.text, " [", message.code, "]\n");
  out += caret(message.span);
  for (const Note& note : message.notes) {
    if (note.span.source) out += place(note.span) + "note: " + note.text + "\n" + caret(note.span);
    else out += "      = help: " + note.text + "\n";
  }
  return out;
}

void put_place(Json& json, const Span& span) {
  if (!span.source) return;
  const LineColumn from = locate(*span.source, span.begin), to = locate(*span.source, span.end);
  json.field("file", span.source->path).field("line", from.line).field("column", from.column);
  json.field("end_line", to.line).field("end_column", to.column);
}

std::string as_json(const Message& message) {
  Json json;
  put_place(json.open('{'), message.span);
  json.field("severity", word(message.severity)).field("code", message.code).field("message", message.text);
  json.key("notes").open('[');
  for (const Note& note : message.notes) {
    put_place(json.open('{'), note.span);
    json.field("message", note.text).close('}');
  }
  return json.close(']').close('}').take();
}

/// Workflow commands write `%`, line ends and, in properties, `:` and `,` in hexadecimal.
std::string github_escaped(std::string_view text, bool property) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool special = std::string_view(property ? "%\n\r:," : "%\n\r").find(c) != std::string_view::npos;
    const auto byte = static_cast<unsigned char>(c);
    out += special ? concat('%', digits[byte >> 4], digits[byte & 15]) : std::string(1, c);
  }
  return out;
}

std::string as_github(const Message& message) {
  std::string out = concat("::", word(message.severity), " ");
  if (message.span.source) {
    const LineColumn at = locate(*message.span.source, message.span.begin);
    out += "file=" + github_escaped(message.span.source->path, true);
    out += ",line=" + std::to_string(at.line) + ",col=" + std::to_string(at.column) + ",";
  }
  std::string text = message.text;
  for (const Note& note : message.notes) text += "\n" + (note.span.source ? place(note.span) : "") + note.text;
  return out + "title=" + github_escaped(message.code, true) + "::" + github_escaped(text, false) + "\n";
}

}  // namespace

Message& Message::note(Span where, std::string words) {
  notes.push_back({where, std::move(words)});
  return *this;
}

Message& Diagnostics::error(std::string_view code, Span span, std::string text) {
  ++errors_;
  return messages_.emplace_back(Message{Severity::error, code, span, std::move(text), {}});
}

Message& Diagnostics::warning(std::string_view code, Span span, std::string text) {
  return messages_.emplace_back(Message{Severity::warning, code, span, std::move(text), {}});
}

Message& Diagnostics::lint(std::string_view code, Span span, std::string text) {
  return strict_ ? error(code, span, std::move(text)) : warning(code, span, std::move(text));
}

void Diagnostics::append(Diagnostics&& other) {
  errors_ += other.errors_;
  std::ranges::move(other.messages_, std::back_inserter(messages_));
}

void Diagnostics::drop_warnings(std::string_view code) {
  std::erase_if(messages_, [&](const Message& m) { return m.severity == Severity::warning && m.code == code; });
}

std::string Diagnostics::rendered(MessageFormat format) const {
  std::vector<const Message*> sorted(messages_.size());
  std::ranges::transform(messages_, sorted.begin(), [](const Message& message) { return &message; });
  const auto key = [](const Message* m) {
    return std::pair(m->span.source ? m->span.source->order + 1 : 0, m->span.begin);
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Message* a, const Message* b) { return key(a) < key(b); });
  const auto render = format == MessageFormat::gcc ? as_gcc : format == MessageFormat::json ? as_json : as_github;
  std::string out;
  for (std::size_t i = 0; i < std::min(sorted.size(), most_messages); ++i) out += render(*sorted[i]);
  if (sorted.size() > most_messages && format == MessageFormat::gcc) {
    out += "tangle: " + std::to_string(sorted.size() - most_messages) + " more messages\n";
  }
  return out;
}

}  // namespace tangle
