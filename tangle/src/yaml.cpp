#include "yaml.h"

#include <algorithm>

#include "text.h"

namespace tangle {
namespace {

constexpr std::uint32_t deepest = 16;

class Reader {
 public:
  Reader(Span span, Diagnostics& diagnostics)
      : source_(span.source), text_(span.source->text), next_(span.begin), last_(span.end), diagnostics_(diagnostics) {
    advance();
  }

  YamlNode run() {
    YamlNode root = live_ ? block(0) : node(YamlNode::Kind::map);
    if (live_) fail(here(), "this line stands left of the map it follows");
    if (root.kind != YamlNode::Kind::map) fail(root.span, "expected \"key: value\" lines");
    return root;
  }

 private:
  std::uint32_t indent() const { return at_ - begin_; }
  char peek(std::uint32_t more = 0) const { return at_ + more < end_ ? text_[at_ + more] : '\0'; }
  Span here() const { return {source_, at_, end_}; }
  std::string_view rest() const { return here().text(); }
  void skip_spaces() {
    while (peek() == ' ') ++at_;
  }
  YamlNode node(YamlNode::Kind kind) const { return {kind, {source_, at_, at_}, {}, {}, {}}; }

  /// An error after which reading goes on.
  void refuse(Span where, std::string words) { diagnostics_.error("bad-yaml", where, std::move(words)); }

  void fail(Span where, std::string words) {
    if (!failed_) refuse(where, std::move(words));
    failed_ = true;
    live_ = false;
  }

  /// Moves to the next line that holds something; strips comments and trailing blanks.
  void advance() {
    live_ = false;
    while (!live_ && !failed_ && next_ < last_) {
      begin_ = at_ = next_;
      end_ = static_cast<std::uint32_t>(std::min<std::size_t>(text_.find('\n', begin_), last_));
      next_ = std::min(end_ + 1, last_);
      skip_spaces();
      end_ = comment_begin();
      while (end_ > at_ && std::string_view(" \t\r").find(text_[end_ - 1]) != std::string_view::npos) --end_;
      live_ = end_ > at_;
      if (peek() == '\t') fail({source_, at_, at_ + 1}, "indent with spaces here, not tabs");
    }
  }

  std::uint32_t comment_begin() const {
    char quote = 0;
    for (std::uint32_t i = at_; i < end_; ++i) {
      const char c = text_[i];
      const char before = i == at_ ? ' ' : text_[i - 1];
      if (quote) {
        if (c == '\\' && quote == '"') ++i;
        else if (c == quote) quote = 0;
      } else if ((c == '"' || c == '\'') && std::string_view(" [,").find(before) != std::string_view::npos) {
        quote = c;
      } else if (c == '#' && (before == ' ' || before == '\t')) {
        return i;
      }
    }
    return end_;
  }

  bool at_item() const { return rest() == "-" || rest().starts_with("- "); }

  /// The key at the start of this line, which a colon ends; empty when there is none.
  std::string_view key() const {
    constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const std::size_t length = std::min(rest().find_first_not_of(letters), rest().size());
    const std::string_view after = rest().substr(length);
    return after == ":" || after.starts_with(": ") ? rest().substr(0, length) : std::string_view{};
  }

  /// The list or map that begins on this line.
  YamlNode block(std::uint32_t depth) {
    if (depth <= deepest) return at_item() ? list(depth) : map(depth);
    fail(here(), "nested too deeply");
    return {};
  }

  YamlNode list(std::uint32_t depth) {
    YamlNode out = node(YamlNode::Kind::list);
    for (const std::uint32_t column = indent(); live_ && indent() == column && at_item();) {
      ++at_;
      skip_spaces();
      if (at_ == end_) {
        advance();
        if (live_ && indent() > column) out.items.push_back(block(depth + 1));
      } else {
        out.items.push_back(key().empty() ? value(column) : map(depth + 1));
      }
    }
    return out;
  }

  YamlNode map(std::uint32_t depth) {
    YamlNode out = node(YamlNode::Kind::map);
    for (const std::uint32_t column = indent(); live_ && indent() == column;) {
      YamlNode name = node(YamlNode::Kind::scalar);
      name.scalar = key();
      if (name.scalar.empty()) {
        fail(here(), "expected \"key: value\"");
        break;
      }
      at_ = name.span.end = at_ + static_cast<std::uint32_t>(name.scalar.size());
      if (const YamlNode* first = out.find(name.scalar)) {
        diagnostics_.error("bad-yaml", name.span, quoted(name.scalar) + " is given twice")
            .note(first->span, "the first value is here");
      }
      ++at_;
      skip_spaces();
      out.keys.push_back(std::move(name));
      out.items.push_back(at_ == end_ ? nested(column, depth) : value(column));
    }
    return out;
  }

  /// The value of a key that stands on the lines below it.
  YamlNode nested(std::uint32_t column, std::uint32_t depth) {
    YamlNode nothing = node(YamlNode::Kind::null);
    advance();
    return live_ && (indent() > column || (indent() == column && at_item())) ? block(depth + 1) : nothing;
  }

  YamlNode value(std::uint32_t column) {
    if (peek() == '[') return flow_list();
    YamlNode out = scalar("");
    // A plain or quoted scalar may go on in deeper lines.
    for (advance(); live_ && indent() > column && !at_item() && key().empty(); advance()) {
      out.scalar += concat(' ', rest());
      check_plain(here(), false);
    }
    return out;
  }

  YamlNode flow_list() {
    YamlNode out = node(YamlNode::Kind::list);
    out.span.end = ++at_;
    while (!failed_) {
      while (live_ && (peek() == ' ' || peek() == ',')) ++at_;
      if (!live_) {
        fail(out.span, "this list is not closed: \"]\" is missing");
      } else if (at_ == end_) {
        advance();
      } else if (peek() == ']') {
        if (++at_ < end_) fail(here(), "nothing may follow the list");
        advance();
        return out;
      } else {
        out.items.push_back(scalar(",]"));
      }
    }
    return out;
  }

  /// One scalar, up to the end of the line or one of `stops`.
  YamlNode scalar(std::string_view stops) {
    YamlNode out = node(YamlNode::Kind::scalar);
    if (peek() == '"' || peek() == '\'') {
      quoted_text(out);
      if (stops.empty() && at_ < end_) fail(here(), "nothing may follow the quoted text");
      return out;
    }
    while (at_ < end_ && stops.find(peek()) == std::string_view::npos) ++at_;
    out.span.end = at_;
    while (out.span.text().ends_with(' ')) --out.span.end;
    out.scalar = out.span.text();
    check_plain(out.span, true);
    return out;
  }

  void quoted_text(YamlNode& out) {
    const char quote = peek();
    out.span.begin = ++at_;
    while (at_ < end_) {
      const bool doubled = quote == '\'' && peek() == quote && peek(1) == quote;
      if (peek() == quote && !doubled) break;
      if (doubled || (quote == '"' && peek() == '\\' && at_ + 1 < end_)) ++at_;
      out.scalar += text_[at_++];
    }
    out.span.end = at_;
    if (at_ >= end_) fail({source_, out.span.begin - 1, end_}, "the quoted text is not closed");
    else ++at_;
  }

  /// Refuses what other YAML readers would read as something else than text.
  void check_plain(Span span, bool at_start) {
    const std::string_view word = span.text();
    const std::size_t colon = word.find(": ");
    if (colon != std::string_view::npos || word.ends_with(':')) {
      refuse(span_at(*source_, span.begin + std::min(colon, word.size() - 1), 1),
             "text with \": \" in it needs quotes around it in YAML");
    } else if (at_start && !word.empty() && std::string_view("&*!|>%@`{}").find(word[0]) != std::string_view::npos) {
      refuse(span, concat("text that begins with \"", word[0], "\" needs quotes around it in YAML"));
    }
  }

  const Source* source_;
  std::string_view text_;
  std::uint32_t begin_ = 0, at_ = 0, end_ = 0, next_, last_;  // of the current line; the next line; the end of all
  Diagnostics& diagnostics_;
  bool live_ = false, failed_ = false;
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (std::size_t i = 0; i < keys.size() && i < items.size(); ++i) {
    if (keys[i].scalar == key) return &items[i];
  }
  return nullptr;
}

std::string_view YamlNode::text(std::string_view key) const {
  const YamlNode* node = find(key);
  return node && node->kind == Kind::scalar ? std::string_view(node->scalar) : std::string_view{};
}

std::vector<const YamlNode*> YamlNode::list(std::string_view key) const {
  std::vector<const YamlNode*> out;
  const YamlNode* node = find(key);
  if (!node) return out;
  if (node->kind == Kind::scalar) out.push_back(node);
  for (const YamlNode& item : node->items) {
    if (item.kind == Kind::scalar) out.push_back(&item);
  }
  return out;
}

YamlNode parse_yaml(Span span, Diagnostics& diagnostics) { return Reader(span, diagnostics).run(); }

}  // namespace tangle
