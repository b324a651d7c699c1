#include "attributes.h"

#include <algorithm>

#include "text.h"

namespace tangle {
namespace {

class Reader {
 public:
  Reader(Span span, Diagnostics& diagnostics)
      : source_(span.source), at_(span.begin), end_(span.end), diagnostics_(diagnostics) {}

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
  void skip_blanks() {
    while (at_ < end_ && (peek() == ' ' || peek() == '\t' || peek() == '\r')) ++at_;
  }
  std::string_view view(std::uint32_t begin) const { return source_->text.substr(begin, at_ - begin); }
  /// A run of characters that cannot end an attribute.
  std::string_view word() {
    const std::uint32_t begin = at_;
    while (at_ < end_ && std::string_view(" \t\r}=\"#").find(peek()) == std::string_view::npos) ++at_;
    return view(begin);
  }

  void item() {
    const std::uint32_t begin = at_;
    if (peek() == '#') return id(begin);
    if (peek() == '.') {
      ++at_;
      const std::string_view name = word();
      out_.classes.push_back({name, {source_, begin, at_}});
      return;
    }
    const std::string_view key = word();
    if (!key.empty() && at_ < end_ && peek() == '=') return pair(begin, key);
    if (at_ == begin) ++at_;
    word();
    diagnostics_.error("bad-attribute", {source_, begin, at_}, "expected #id, .class, key=value or key=\"value\"");
  }

  void id(std::uint32_t begin) {
    ++at_;
    const std::string_view name = word();
    const Span span{source_, begin, at_};
    if (!out_.id.empty()) {
      diagnostics_.error("second-id", span, "a chunk has one id").note(out_.id_span, "the first id is here");
    } else if (!is_id(name)) {
      diagnostics_.error("bad-id", span,
                         "an id is lower-case letters, digits and hyphens, at most 100 of them, and "
                         "begins with a letter or digit");
    }
    out_.id = name;
    out_.id_span = span;
  }

  void pair(std::uint32_t begin, std::string_view key) {
    ++at_;
    std::string value;
    std::uint32_t from = at_;
    std::uint32_t to = at_;
    if (at_ < end_ && peek() == '"') {
      from = ++at_;
      while (at_ < end_ && peek() != '"') ++at_;
      to = at_;
      value = view(from);
      if (at_ >= end_) {
        diagnostics_.error("unclosed-quote", {source_, from - 1, end_},
                           "the value of \"" + std::string(key) + "\" is not closed: '\"' is missing");
        gave_up_ = true;
        return;
      }
      ++at_;
    } else {
      value = word();
      to = at_;
    }
    const Span span{source_, begin, at_};
    const std::size_t backslash = value.find('\\');
    if (backslash != std::string::npos) {
      const std::uint32_t where = from + static_cast<std::uint32_t>(backslash);
      gave_up_ = true;
      diagnostics_
          .error("backslash-in-value", {source_, where, where + 1},
                 "a backslash in a value makes Pandoc read the whole line otherwise")
          .help("say it without: in a regular expression, [.] for a dot and [[] for a bracket");
    }
    if (const KeyValue* first = out_.find(key)) {
      diagnostics_.error("second-value", span, "\"" + std::string(key) + "\" is given twice")
          .note(first->span, "the first value is here");
    }
    out_.pairs.push_back({key, std::move(value), span, {source_, from, to}});
  }

  const Source* source_;
  std::uint32_t at_, end_;
  Diagnostics& diagnostics_;
  Attributes out_;
  bool gave_up_ = false;
};

}  // namespace

bool Attributes::has(std::string_view class_name) const {
  return std::any_of(classes.begin(), classes.end(), [&](const ClassName& c) { return c.name == class_name; });
}

const KeyValue* Attributes::find(std::string_view key) const {
  const auto found = std::find_if(pairs.begin(), pairs.end(), [&](const KeyValue& pair) { return pair.key == key; });
  return found == pairs.end() ? nullptr : &*found;
}

std::string_view Attributes::value(std::string_view key) const {
  const KeyValue* pair = find(key);
  return pair ? std::string_view(pair->value) : std::string_view{};
}

Attributes parse_attributes(Span span, Diagnostics& diagnostics) { return Reader(span, diagnostics).run(); }

}  // namespace tangle
