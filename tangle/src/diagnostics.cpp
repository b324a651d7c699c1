#include "diagnostics.h"

#include <algorithm>

#include "text.h"

namespace tangle {
namespace {

constexpr std::size_t most_messages = 100;

std::string_view word(Severity severity) { return severity == Severity::error ? "error" : "warning"; }

std::string place(const Span& span) {
  if (!span.source) return "tangle: ";
  const LineColumn at = locate(*span.source, span.begin);
  return span.source->path + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": ";
}

/// The source line and a caret under the first byte of the span, tildes under the rest of it.
void append_caret(std::string& out, const Span& span) {
  if (!span.source) return;
  const Span line = line_around(*span.source, span.begin);
  constexpr std::uint32_t widest = 200;
  if (span.begin - line.begin > widest) return;
  const Span shown{span.source, line.begin, std::min(line.end, line.begin + widest)};
  const std::string number = std::to_string(locate(*span.source, span.begin).line);
  const std::string margin(number.size() < 5 ? 5 - number.size() : 0, ' ');
  out += margin + number + " | " + printable(shown.text()) + "\n";
  out += std::string(margin.size() + number.size(), ' ') + " | ";
  const std::string before = printable({shown.text().data(), span.begin - line.begin});
  for (const char c : before) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) out += c == '\t' ? '\t' : ' ';
  }
  out += '^';
  const std::uint32_t last = std::min(span.end, shown.end);
  for (std::uint32_t i = span.begin + 1; i < last; ++i) {
    if ((static_cast<unsigned char>(span.source->text[i]) & 0xC0) != 0x80) out += '~';
  }
  out += '\n';
}

void append_gcc(std::string& out, const Message& message) {
  out += place(message.span);
  out += word(message.severity);
  out += ": " + message.text + " [" + std::string(message.code) + "]\n";
  append_caret(out, message.span);
  for (const Note& note : message.notes) {
    if (note.span.source) {
      out += place(note.span) + "note: " + note.text + "\n";
      append_caret(out, note.span);
    } else {
      out += "      = help: " + note.text + "\n";
    }
  }
}

void append_json_place(std::string& out, const Span& span) {
  if (!span.source) return;
  const LineColumn from = locate(*span.source, span.begin);
  const LineColumn to = locate(*span.source, span.end);
  out += "\"file\":";
  append_json_string(out, span.source->path);
  out += ",\"line\":" + std::to_string(from.line) + ",\"column\":" + std::to_string(from.column);
  out += ",\"end_line\":" + std::to_string(to.line);
  out += ",\"end_column\":" + std::to_string(to.column) + ",";
}

void append_json(std::string& out, const Message& message) {
  out += "{";
  append_json_place(out, message.span);
  out += "\"severity\":\"" + std::string(word(message.severity)) + "\",\"code\":";
  append_json_string(out, message.code);
  out += ",\"message\":";
  append_json_string(out, message.text);
  out += ",\"notes\":[";
  for (std::size_t i = 0; i < message.notes.size(); ++i) {
    out += i ? ",{" : "{";
    append_json_place(out, message.notes[i].span);
    out += "\"message\":";
    append_json_string(out, message.notes[i].text);
    out += "}";
  }
  out += "]}\n";
}

/// Workflow commands escape `%`, line ends and, in properties, `:` and `,`.
std::string github_escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : text) {
    if (c == '%') out += "%25";
    else if (c == '\n') out += "%0A";
    else if (c == '\r') out += "%0D";
    else if (property && c == ':') out += "%3A";
    else if (property && c == ',') out += "%2C";
    else out += c;
  }
  return out;
}

void append_github(std::string& out, const Message& message) {
  out += "::" + std::string(word(message.severity)) + " ";
  if (message.span.source) {
    const LineColumn at = locate(*message.span.source, message.span.begin);
    out += "file=" + github_escaped(message.span.source->path, true);
    out += ",line=" + std::to_string(at.line) + ",col=" + std::to_string(at.column) + ",";
  }
  out += "title=" + github_escaped(message.code, true) + "::";
  std::string text = message.text;
  for (const Note& note : message.notes) {
    text += "\n" + (note.span.source ? place(note.span) : std::string()) + note.text;
  }
  out += github_escaped(text, false) + "\n";
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

void Diagnostics::drop_warnings(std::string_view code) {
  std::erase_if(messages_, [&](const Message& m) { return m.severity == Severity::warning && m.code == code; });
}

std::string Diagnostics::rendered(MessageFormat format) const {
  std::vector<const Message*> sorted;
  for (const Message& message : messages_) sorted.push_back(&message);
  const auto key = [](const Message* m) {
    return std::pair(m->span.source ? m->span.source->order + 1 : 0, m->span.begin);
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Message* a, const Message* b) { return key(a) < key(b); });
  std::string out;
  for (std::size_t i = 0; i < std::min(sorted.size(), most_messages); ++i) {
    if (format == MessageFormat::gcc) append_gcc(out, *sorted[i]);
    if (format == MessageFormat::json) append_json(out, *sorted[i]);
    if (format == MessageFormat::github) append_github(out, *sorted[i]);
  }
  if (sorted.size() > most_messages && format == MessageFormat::gcc) {
    out += "tangle: " + std::to_string(sorted.size() - most_messages) + " more messages\n";
  }
  return out;
}

}  // namespace tangle
