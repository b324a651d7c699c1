// Find tags and read what is in them.

#include "rose/text/template_lexer.h"

#include <algorithm>
#include <utility>

#include "rose/text/template_unicode.h"

namespace rose::text::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Lexeme> run() {
    while (at_ < source_.size()) text_until_tag();
    add(Token::end, at_, "");
    return std::move(out_);
  }

 private:
  // Note tokens, look ahead, step over space.
  void add(Token token, std::size_t at, std::string text) {
    out_.push_back({token, static_cast<std::uint32_t>(at), std::move(text), Value()});
  }

  bool looking_at(std::string_view text) const { return source_.substr(at_).starts_with(text); }

  bool accept(std::string_view text) {
    if (!looking_at(text)) return false;
    at_ += text.size();
    return true;
  }

  std::size_t after_spaces(std::size_t at) const {
    while (at < source_.size()) {
      std::size_t next = at;
      if (!is_space(next_code_point(source_, next))) break;
      at = next;
    }
    return at;
  }

  // Read the sign of a tag, which says what to do with the space around.
  char sign() {
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) return source_[at_++];
    return 0;
  }

  /// Closes a tag: `close` is "%}" or "#}" or "}}". Returns whether it was there.
  bool tag_end(std::string_view close, bool trims_newline, bool plus_allowed) {
    const std::string minus = "-" + std::string(close), plus = "+" + std::string(close);
    if (accept(minus)) {
      at_ = after_spaces(at_);
    } else if (plus_allowed && accept(plus)) {
    } else if (accept(close)) {
      if (trims_newline && at_ < source_.size() && source_[at_] == '\n') ++at_;
    } else {
      return false;
    }
    return true;
  }

  // Emit the text before a tag, without the spaces that the tag swallows.
  void emit_data(std::size_t begin, std::size_t end, char sign, bool is_variable) {
    std::string_view text = source_.substr(begin, end - begin);
    const bool line_starting = begin == 0 || source_[begin - 1] == '\n';
    if (sign == '-') {
      text = strip(text, false, true);
    } else if (sign != '+' && !is_variable) {
      const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
      if ((line > 0 || line_starting) && strip(text.substr(line)).empty()) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) add(Token::data, begin, std::string(text));
  }

  // Find the next tag.
  void text_until_tag() {
    const std::size_t begin = at_;
    std::size_t tag = begin;
    while ((tag = source_.find('{', tag)) != std::string_view::npos) {
      const char next = tag + 1 < source_.size() ? source_[tag + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++tag;
    }
    if (tag == std::string_view::npos) {
      add(Token::data, begin, std::string(source_.substr(begin)));
      at_ = source_.size();
      return;
    }
    const char kind = source_[tag + 1];
    at_ = tag + 2;
    const char before = sign();
    emit_data(begin, tag, before, kind == '{');
    if (kind == '#') return comment(tag);
    if (kind == '%' && raw(tag)) return;
    add(kind == '{' ? Token::variable_begin : Token::block_begin, tag, "");
    inside_tag(tag, kind == '{');
  }

  // Skip comments, and pass over what stands between raw and endraw.
  void comment(std::size_t tag) {
    for (; at_ < source_.size(); ++at_) {
      if (tag_end("#}", true, true)) return;
    }
    fail_at(tag, "a comment is not closed", "close it with #}");
  }

  /// After "{%" and its sign: takes a whole raw block, or nothing.
  bool raw(std::size_t tag) {
    const std::size_t rewind = at_;
    at_ = after_spaces(at_);
    const bool named = accept("raw");
    at_ = after_spaces(at_);
    if (!named || !tag_end("%}", false, false)) {
      at_ = rewind;
      return false;
    }
    const std::size_t begin = at_;
    for (std::size_t end = at_; (end = source_.find("{%", end)) != std::string_view::npos; ++end) {
      at_ = end + 2;
      const char before = sign();
      at_ = after_spaces(at_);
      if (!accept("endraw")) continue;
      at_ = after_spaces(at_);
      if (!tag_end("%}", true, true)) continue;
      emit_data(begin, end, before, false);
      return true;
    }
    fail_at(tag, "a raw block is not closed", "close it with {% endraw %}");
  }

  // Read the tokens of one tag.
  void inside_tag(std::size_t tag, bool is_variable) {
    std::string open;  // brackets still to be closed, innermost last
    while (true) {
      const std::size_t start = at_;
      if (open.empty() && (is_variable ? tag_end("}}", false, false) : tag_end("%}", true, true))) {
        add(is_variable ? Token::variable_end : Token::block_end, start, "");
        return;
      }
      at_ = after_spaces(at_);
      if (at_ >= source_.size()) {
        fail_at(tag, "a tag is not closed", is_variable ? "close it with }}" : "close it with %}");
      }
      if (at_ != start) continue;
      const char c = source_[at_];
      if (c == '\'' || c == '"') {
        out_.push_back(read_string(source_, at_));
      } else if (is_digit(c)) {
        out_.push_back(read_number(source_, at_));
      } else if (is_name_char(c)) {
        while (at_ < source_.size() && is_name_char(source_[at_])) ++at_;
        add(Token::name, start, std::string(source_.substr(start, at_ - start)));
      } else {
        op(open);
      }
    }
  }

  // Read an operator and keep the brackets balanced.
  void op(std::string& open) {
    static constexpr std::string_view kOps[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const std::size_t start = at_;
    const auto found = std::find_if(std::begin(kOps), std::end(kOps),
                                    [&](std::string_view text) { return looking_at(text); });
    if (found == std::end(kOps)) {
      std::size_t next = at_;
      next_code_point(source_, next);
      fail_at(at_, "unexpected character '" + std::string(source_.substr(at_, next - at_)) + "'",
              "outside of strings, tags are written in plain ASCII");
    }
    const char c = (*found)[0];
    if (c == '(' || c == '[' || c == '{') {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail_at(at_, std::string("unexpected '") + c + "'");
      if (open.back() != c) {
        fail_at(at_, std::string("unexpected '") + c + "', expected '" + open.back() + "'");
      }
      open.pop_back();
    }
    at_ += found->size();
    add(Token::op, start, std::string(*found));
  }

  std::string_view source_;
  std::size_t at_ = 0;
  std::vector<Lexeme> out_;
};

}  // namespace

// Make every line end alike.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

std::vector<Lexeme> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace rose::text::jinja
