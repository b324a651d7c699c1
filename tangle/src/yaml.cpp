#include "yaml.h"

#include <algorithm>

#include "text.h"

namespace tangle {
namespace {

constexpr std::uint32_t deepest = 16;

class Reader {
 public:
  Reader(Span span, Diagnostics& diagnostics) : span_(span), diagnostics_(diagnostics) {
    next_ = span.begin;
    advance();
  }

  YamlNode run() {
    YamlNode root = live_ ? block(indent(), 0) : YamlNode{YamlNode::Kind::map, span_, {}, {}, {}};
    if (live_ && !failed_) fail({span_.source, at_, end_}, "this line stands left of the map it follows");
    if (root.kind != YamlNode::Kind::map && !failed_) fail(root.span, "expected \"key: value\" lines");
    return root;
  }

 private:
  std::string_view text() const { return span_.source->text; }
  std::uint32_t indent() const { return at_ - begin_; }
  std::string_view rest() const { return text().substr(at_, end_ - at_); }

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
    while (!live_ && !failed_ && next_ < span_.end) {
      begin_ = next_;
      const std::uint32_t eol = static_cast<std::uint32_t>(std::min<std::size_t>(text().find('\n', begin_), span_.end));
      next_ = std::min(eol + 1, span_.end);
      at_ = begin_;
      while (at_ < eol && text()[at_] == ' ') ++at_;
      end_ = comment_begin(at_, eol);
      while (end_ > at_ && std::string_view(" \t\r").find(text()[end_ - 1]) != std::string_view::npos) --end_;
      live_ = end_ > at_;
      if (live_ && text()[at_] == '\t') fail({span_.source, at_, at_ + 1}, "indent with spaces here, not tabs");
      if (eol + 1 > span_.end) next_ = span_.end;
    }
  }

  std::uint32_t comment_begin(std::uint32_t from, std::uint32_t eol) const {
    char quote = 0;
    for (std::uint32_t i = from; i < eol; ++i) {
      const char c = text()[i];
      const char before = i == from ? ' ' : text()[i - 1];
      if (quote) {
        if (c == '\\' && quote == '"') ++i;
        else if (c == quote) quote = 0;
      } else if ((c == '"' || c == '\'') && std::string_view(" [,").find(before) != std::string_view::npos) {
        quote = c;
      } else if (c == '#' && (before == ' ' || before == '\t')) {
        return i;
      }
    }
    return eol;
  }

  bool at_item() const { return rest() == "-" || rest().starts_with("- "); }

  /// Offset of the colon that ends a key at the start of this line, or end_.
  std::uint32_t key_end() const {
    std::uint32_t i = at_;
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    while (i < end_ && plain(text()[i])) ++i;
    const bool colon = i > at_ && i < end_ && text()[i] == ':' && (i + 1 == end_ || text()[i + 1] == ' ');
    return colon ? i : end_;
  }

  YamlNode block(std::uint32_t column, std::uint32_t depth) {
    if (depth > deepest) {
      fail({span_.source, at_, end_}, "nested too deeply");
      return {};
    }
    return at_item() ? list(column, depth) : map(column, depth);
  }

  YamlNode list(std::uint32_t column, std::uint32_t depth) {
    YamlNode out{YamlNode::Kind::list, {span_.source, at_, at_}, {}, {}, {}};
    while (live_ && indent() == column && at_item()) {
      ++at_;
      while (at_ < end_ && text()[at_] == ' ') ++at_;
      if (at_ == end_) {
        advance();
        if (live_ && indent() > column) out.items.push_back(block(indent(), depth + 1));
      } else if (key_end() != end_) {
        out.items.push_back(map(indent(), depth + 1));
      } else {
        out.items.push_back(value(column));
      }
    }
    return out;
  }

  YamlNode map(std::uint32_t column, std::uint32_t depth) {
    YamlNode out{YamlNode::Kind::map, {span_.source, at_, at_}, {}, {}, {}};
    while (live_ && indent() == column) {
      const std::uint32_t colon = key_end();
      if (colon == end_) {
        fail({span_.source, at_, end_}, "expected \"key: value\"");
        break;
      }
      YamlNode key{YamlNode::Kind::scalar, {span_.source, at_, colon}, {}, {}, {}};
      key.scalar = key.span.text();
      if (const YamlNode* first = out.find(key.scalar)) {
        diagnostics_.error("bad-yaml", key.span, "\"" + key.scalar + "\" is given twice")
            .note(first->span, "the first value is here");
      }
      at_ = colon + 1;
      while (at_ < end_ && text()[at_] == ' ') ++at_;
      out.keys.push_back(std::move(key));
      out.items.push_back(at_ == end_ ? nested(column, depth) : value(column));
    }
    return out;
  }

  /// The value of a key that stands on the lines below it.
  YamlNode nested(std::uint32_t column, std::uint32_t depth) {
    const Span here{span_.source, at_, at_};
    advance();
    if (live_ && (indent() > column || (indent() == column && at_item()))) return block(indent(), depth + 1);
    return {YamlNode::Kind::null, here, {}, {}, {}};
  }

  YamlNode value(std::uint32_t column) {
    if (text()[at_] == '[') return flow_list();
    YamlNode out = scalar("");
    // A plain or quoted scalar may go on in deeper lines.
    for (advance(); live_ && indent() > column && !at_item() && key_end() == end_; advance()) {
      out.scalar += ' ';
      out.scalar += rest();
      check_plain({span_.source, at_, end_}, false);
    }
    return out;
  }

  YamlNode flow_list() {
    YamlNode out{YamlNode::Kind::list, {span_.source, at_, at_ + 1}, {}, {}, {}};
    ++at_;
    while (!failed_) {
      while (live_ && at_ < end_ && (text()[at_] == ' ' || text()[at_] == ',')) ++at_;
      if (!live_) {
        fail(out.span, "this list is not closed: \"]\" is missing");
      } else if (at_ == end_) {
        advance();
      } else if (text()[at_] == ']') {
        if (++at_ < end_) fail({span_.source, at_, end_}, "nothing may follow the list");
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
    YamlNode out{YamlNode::Kind::scalar, {span_.source, at_, at_}, {}, {}, {}};
    const char quote = text()[at_];
    if (quote == '"' || quote == '\'') {
      quoted(out, quote);
      if (stops.empty() && at_ < end_) fail({span_.source, at_, end_}, "nothing may follow the quoted text");
      return out;
    }
    while (at_ < end_ && stops.find(text()[at_]) == std::string_view::npos) ++at_;
    out.span.end = at_;
    while (out.span.end > out.span.begin && text()[out.span.end - 1] == ' ') --out.span.end;
    out.scalar = out.span.text();
    check_plain(out.span, true);
    return out;
  }

  void quoted(YamlNode& out, char quote) {
    out.span.begin = ++at_;
    const auto at = [&](std::uint32_t i) { return i < end_ ? text()[i] : '\0'; };
    while (at_ < end_) {
      const bool doubled = quote == '\'' && at(at_) == quote && at(at_ + 1) == quote;
      if (at(at_) == quote && !doubled) break;
      if (doubled || (quote == '"' && at(at_) == '\\' && at_ + 1 < end_)) ++at_;
      out.scalar += text()[at_++];
    }
    out.span.end = at_;
    if (at_ >= end_) fail({span_.source, out.span.begin - 1, end_}, "the quoted text is not closed");
    else ++at_;
  }

  /// Refuses what other YAML readers would read as something else than text.
  void check_plain(Span span, bool at_start) {
    const std::string_view word = span.text();
    const std::size_t colon = word.find(": ");
    if (colon != std::string_view::npos || word.ends_with(':')) {
      const auto where = span.begin + static_cast<std::uint32_t>(std::min(colon, word.size() - 1));
      refuse({span_.source, where, where + 1}, "text with \": \" in it needs quotes around it in YAML");
    } else if (at_start && !word.empty() && std::string_view("&*!|>%@`{}").find(word[0]) != std::string_view::npos) {
      refuse(span, "text that begins with \"" + std::string(1, word[0]) + "\" needs quotes around it in YAML");
    }
  }

  Span span_;
  Diagnostics& diagnostics_;
  std::uint32_t begin_ = 0, at_ = 0, end_ = 0, next_ = 0;  // the current line
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
