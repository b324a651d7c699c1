#include "comments.h"

#include <algorithm>
#include <vector>

#include "highlight.h"

namespace weave {
namespace {

class Comments {
 public:
  Comments(std::string_view text, const std::function<std::string(std::size_t)>& title)
      : text_(text), title_(title), tokens_(lex(text, "cpp")) {
    for (std::size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1)
      lines_.push_back(at);
  }

  std::string run() {
    for (at_ = 0; at_ < tokens_.size(); ++at_) {
      const std::string_view word = tokens_[at_].of(text_);
      if (word.starts_with("//")) {
        if (bodies_ == 0) comment(word);
      } else if (word.starts_with('#')) {
        directive();
      } else {
        code(word);
      }
    }
    return out_.append(text_.substr(written_));
  }

 private:
  std::size_t line_of(std::size_t byte) const {
    return static_cast<std::size_t>(std::upper_bound(lines_.begin(), lines_.end(), byte) - lines_.begin()) - 1;
  }
  std::size_t column_of(std::size_t token) const {
    return tokens_[token].begin - lines_[line_of(tokens_[token].begin)];
  }
  bool first_on_line(std::size_t token) const {
    return token == 0 || line_of(tokens_[token - 1].end - 1) < line_of(tokens_[token].begin);
  }
  bool is_comment(std::size_t token) const {
    return token < tokens_.size() && tokens_[token].of(text_).starts_with("//");
  }

  void code(std::string_view word) {
    const std::string_view before = at_ == 0 ? std::string_view{} : tokens_[at_ - 1].of(text_);
    if (!inside_ && word != "}" && word != ";" && in_namespace()) begin();
    if (word == "{") {
      scopes_.push_back(holds_declarations_ ? scope_ : 'b');
      bodies_ += holds_declarations_ ? 0 : 1;
    } else if (word == "}" && !scopes_.empty()) {
      bodies_ -= scopes_.back() == 'b' ? 1 : 0;
      scopes_.pop_back();
    } else if (before != "<" && before != ",") {
      for (const std::string_view each : {"namespace", "struct", "class", "union", "enum", "extern"}) {
        if (word != each || holds_declarations_) continue;
        holds_declarations_ = true;
        scope_ = word == "namespace" || word == "extern" ? 'n' : 't';
      }
    }
    if (word == "{" || word == "}" || word == ";") holds_declarations_ = false;
    if ((word == "{" && scope_ == 'n') || ((word == "}" || word == ";") && in_namespace())) {
      inside_ = false;
      ended_ = line_of(tokens_[at_].begin);
    }
  }

  bool in_namespace() const {
    return std::all_of(scopes_.begin(), scopes_.end(), [](char each) { return each == 'n'; });
  }

  /// A statement of a namespace begins. The comment of what stands right above, without an empty line, speaks of it too,
  /// and what stands behind its opening brace as well; without either it gets the words of its chunk.
  void begin() {
    inside_ = true;
    const std::size_t line = line_of(tokens_[at_].begin);
    const bool own = said_line_ + 1 == line && !said_.empty();
    if (own) return;
    if (ended_ + 1 != line) said_.clear();
    const std::size_t end = end_of_statement();
    const bool followed = is_comment(end + 1) && !first_on_line(end + 1);
    const bool speaks_for_itself = followed && tokens_[end].of(text_) == ";";
    if (followed && !speaks_for_itself) said_ = plain(tokens_[end + 1].of(text_));
    if (speaks_for_itself || !declares(end)) return said_.clear();
    std::string words = said_;
    if (words.empty()) words = plain(title_(line + 1));
    if (words.empty()) return;
    out_.append(text_.substr(written_, tokens_[at_].begin - written_)).append("/** ").append(words).append(" */ ");
    written_ = tokens_[at_].begin;
  }

  std::size_t end_of_statement() const {
    int depth = 0;
    for (std::size_t end = at_; end < tokens_.size(); ++end) {
      const std::string_view each = tokens_[end].of(text_);
      depth += each == "(" ? 1 : each == ")" ? -1 : 0;
      if (depth == 0 && (each == ";" || each == "{")) return end;
    }
    return tokens_.size() - 1;
  }

  /// Whether the statement says for the first time what its name is.
  bool declares(std::size_t end) const {
    const std::string_view first = tokens_[at_].of(text_);
    if (first == "namespace" || first == "extern") return false;
    if (first == "using") return at_ + 2 < tokens_.size() && tokens_[at_ + 2].of(text_) == "=";
    const bool ahead = tokens_[end].of(text_) == ";";
    if (ahead && (first == "struct" || first == "class" || first == "enum")) return false;
    for (std::size_t i = at_; i < end; ++i) {
      if (tokens_[i].of(text_) != "(") continue;
      return i < at_ + 3 || tokens_[i - 2].of(text_) != ":" || tokens_[i - 3].of(text_) != ":";  // C::f(…) is known
    }
    return true;
  }

  /// A preprocessor's line, with the lines that continue it.
  void directive() {
    std::size_t end = std::min(text_.find('\n', tokens_[at_].begin), text_.size());
    while (end > 0 && end < text_.size() && text_[end - 1] == '\\')
      end = std::min(text_.find('\n', end + 1), text_.size());
    while (at_ + 1 < tokens_.size() && tokens_[at_ + 1].begin < end && !is_comment(at_ + 1)) ++at_;
  }

  void comment(std::string_view word) {
    if (word.starts_with("///")) return put(word.starts_with("///<") ? "///<" : "///", word);
    if (!first_on_line(at_)) {
      const std::string_view before = tokens_[at_ - 1].of(text_);
      const bool ended = before == ";" || before == "," || tokens_[at_ - 1].kind == TokenKind::name;
      trailing_ = ended ? column_of(at_) : 0;
      trailing_line_ = line_of(tokens_[at_].begin);
      if (ended) put("///<", word);
      return;
    }
    const std::size_t line = line_of(tokens_[at_].begin);
    if (trailing_ != 0 && trailing_line_ + 1 == line && column_of(at_) == trailing_) {  // goes on below
      trailing_line_ = line;
      return put("///<", word);
    }
    if (stands_above_code()) put("///", word);
  }

  /// Whether a declaration follows this comment and those right below it, without an empty line.
  bool stands_above_code() const {
    std::size_t next = at_;
    while (is_comment(next + 1) && line_of(tokens_[next + 1].begin) == line_of(tokens_[next].begin) + 1) ++next;
    if (next + 1 >= tokens_.size() || line_of(tokens_[next + 1].begin) != line_of(tokens_[next].begin) + 1)
      return false;
    const std::string_view code = tokens_[next + 1].of(text_);
    for (const std::string_view each : {"}", "public", "private", "protected", "namespace"})
      if (code == each) return false;
    return !code.starts_with('#') && line_of(tokens_[at_].begin) > 0;
  }

  void put(std::string_view opening, std::string_view comment) {
    const std::string words = plain(comment);
    out_.append(text_.substr(written_, tokens_[at_].begin - written_)).append(opening).append(words);
    written_ = tokens_[at_].end;
    if (opening != "///" || !in_namespace()) return;
    const std::size_t line = line_of(tokens_[at_].begin);
    said_ = said_line_ + 1 == line && !said_.empty() ? said_ + words : words;
    said_line_ = line;
  }

  /// The words of a comment, with nothing in them that Doxygen would take for a command or a tag.
  static std::string plain(std::string_view comment) {
    comment.remove_prefix(std::min(comment.find_first_not_of('/'), comment.size()));
    if (comment.starts_with('<')) comment.remove_prefix(1);
    std::string out;
    bool verbatim = false;
    for (const char c : comment) {
      if (c == '`') verbatim = !verbatim;
      constexpr std::string_view meant = "\\@<>#%&";
      if (!verbatim && meant.find(c) != std::string_view::npos) out += '\\';
      out += c;
    }
    return out;
  }

  std::string_view text_;
  const std::function<std::string(std::size_t)>& title_;
  std::vector<Token> tokens_;
  std::vector<std::size_t> lines_;   ///< where each begins
  std::string scopes_;               ///< of the open braces: n of a namespace, t of a type, b of anything else
  bool holds_declarations_ = false;  ///< the next brace, by what its statement began with
  char scope_ = 'b';                 ///< and then of what kind it is
  bool inside_ = false;              ///< a statement of a namespace
  std::size_t ended_ = 0;            ///< the line of the last one's end
  std::string said_;                 ///< of the last one, or of the next
  std::size_t said_line_ = 0;
  int bodies_ = 0;
  std::size_t at_ = 0, written_ = 0;
  std::size_t trailing_ = 0, trailing_line_ = 0;
  std::string out_;
};

}  // namespace

std::string for_doxygen(std::string_view header, const std::function<std::string(std::size_t)>& title) {
  return Comments(header, title).run();
}

}  // namespace weave
