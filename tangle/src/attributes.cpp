#include "attributes.h"

#include <algorithm>

#include "text.h"

namespace tangle {
namespace {

class Reader {
 public:
  Reader(Span span, bool dots, Diagnostics& diagnostics)
      : source_(span.source), at_(span.begin), end_(span.end), dots_(dots), diagnostics_(diagnostics) {}

  Attributes run() {
    const std::uint32_t open = at_++;
    while (skip_blanks(), at_ < end_ && peek() != '}' && !gave_up_) item();
    if (gave_up_) return std::move(out_);
    if (at_ >= end_) {
      diagnostics_.error("unclosed-attributes", {source_, open, end_},
                         "the attributes are not closed: \"}\" is missing at the end of this line");
      return std::move(out_);
    }
    out_.span = {source_, open, ++at_};
    skip_blanks();
    if (at_ < end_) {
      diagnostics_.error("text-after-attributes", {source_, at_, end_}, "nothing may follow the attributes of a fence");
    }
    return std::move(out_);
  }

 private:
  char peek() const { return source_->text[at_]; }
  Span from(std::uint32_t begin) const { return {source_, begin, at_}; }
  void skip_blanks() {
    while (at_ < end_ && (peek() == ' ' || peek() == '\t' || peek() == '\r')) ++at_;
  }
  /// Steps to the next of `stops` and returns what was passed.
  std::string_view until(std::string_view stops) {
    const std::uint32_t begin = at_;
    while (at_ < end_ && stops.find(peek()) == std::string_view::npos) ++at_;
    return from(begin).text();
  }
  /// A run of characters that cannot end an attribute.
  std::string_view word() { return until(" \t\r}=\"#"); }

  void item() {
    const std::uint32_t begin = at_;
    const char mark = peek();
    if (mark == '#' || mark == '.') ++at_;
    const std::string_view name = word();
    if (mark == '#') return id(name, from(begin));
    if (mark == '.') return void(out_.classes.push_back({name, from(begin)}));
    if (!name.empty() && at_ < end_ && peek() == '=') return pair(begin, name);
    if (at_ == begin) ++at_;
    word();
    diagnostics_.error("bad-attribute", from(begin), "expected #id, .class, key=value or key=\"value\"");
  }

  void id(std::string_view name, Span span) {
    if (!out_.id.empty()) {
      diagnostics_.error("second-id", span, "a chunk has one id").note(out_.id_span, "the first id is here");
    } else if (!is_id(name, dots_)) {
      diagnostics_.error("bad-id", span,
                         "an id is lower-case letters, digits and hyphens, at most 100 of them, and "
                         "begins with a letter or digit");
    }
    out_.id = name;
    out_.id_span = span;
  }

  void pair(std::uint32_t begin, std::string_view key) {
    ++at_;
    const bool quote = at_ < end_ && peek() == '"';
    if (quote) ++at_;
    const std::uint32_t first = at_;
    const std::string_view value = quote ? until("\"") : word();
    const Span inner = from(first);
    if (quote && at_ >= end_) {
      diagnostics_.error("unclosed-quote", from(first - 1),
                         "the value of " + quoted(key) + " is not closed: '\"' is missing");
      gave_up_ = true;
      return;
    }
    if (quote) ++at_;
    if (const std::size_t backslash = value.find('\\'); backslash != std::string_view::npos) {
      const std::uint32_t where = first + static_cast<std::uint32_t>(backslash);
      gave_up_ = true;
      diagnostics_
          .error("backslash-in-value", {source_, where, where + 1},
                 "a backslash in a value makes Pandoc read the whole line otherwise")
          .help("say it without: in a regular expression, [.] for a dot and [[] for a bracket");
    }
    if (const KeyValue* other = out_.find(key)) {
      diagnostics_.error("second-value", from(begin), quoted(key) + " is given twice")
          .note(other->span, "the first value is here");
    }
    out_.pairs.push_back({key, value, from(begin), inner});
  }

  const Source* source_;
  std::uint32_t at_, end_;
  bool dots_;
  Diagnostics& diagnostics_;
  Attributes out_;
  bool gave_up_ = false;
};

}  // namespace

const KeyValue* Attributes::find(std::string_view key) const {
  const auto found = std::ranges::find(pairs, key, &KeyValue::key);
  return found == pairs.end() ? nullptr : &*found;
}

std::string_view Attributes::value(std::string_view key) const {
  const KeyValue* pair = find(key);
  return pair ? pair->value : std::string_view{};
}

Attributes parse_attributes(Span span, bool dots, Diagnostics& diagnostics) {
  return Reader(span, dots, diagnostics).run();
}

}  // namespace tangle
