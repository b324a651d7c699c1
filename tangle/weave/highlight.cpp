#include "highlight.h"

#include <algorithm>
#include <array>
#include <string>

namespace weave {
namespace {

// What gives a piece of code its shape. Types and qualifiers such as `int` and `const` are left out: colouring every
// other word tells nothing, and each costs the page an element.
constexpr std::array cpp_words = {"break", "case",     "catch",  "class",         "concept", "continue",  "do",
                                  "else",  "enum",     "for",    "friend",        "goto",    "if",        "namespace",
                                  "new",   "requires", "return", "static_assert", "struct",  "switch",    "template",
                                  "throw", "try",      "union",  "using",         "while",   "__global__"};
constexpr std::array script_words = {
    "and",  "as",   "async",  "await", "break",  "case", "class",    "continue", "def",    "do",   "done",   "elif",
    "else", "esac", "export", "fi",    "for",    "from", "function", "if",       "import", "in",   "lambda", "local",
    "not",  "or",   "pass",   "raise", "return", "set",  "then",     "try",      "while",  "with", "yield"};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         (static_cast<unsigned char>(c) & 0x80U) != 0;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view text, bool cpp) : text_(text), cpp_(cpp) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\n' || c == '\t' || c == '\r') ++at_;
      else if (comment()) continue;
      else if (c == '#' && cpp_) directive();
      else if (c == '"' || c == '\'') string(c);
      else if (is_digit(c)) number();
      else if (is_word(c)) word();
      else add(TokenKind::other, at_ + 1);
    }
    return std::move(tokens_);
  }

 private:
  bool starts(std::string_view with) const { return text_.substr(at_).starts_with(with); }
  void add(TokenKind kind, std::size_t end) {
    tokens_.push_back({kind, at_, std::min(end, text_.size())});
    at_ = std::min(end, text_.size());
  }
  std::size_t after(std::string_view what, std::size_t from) const {
    const std::size_t found = text_.find(what, from);
    return found == std::string_view::npos ? text_.size() : found + what.size();
  }
  std::size_t line_end() const { return std::min(text_.find('\n', at_), text_.size()); }

  bool comment() {
    if (cpp_ && starts("//")) return add(TokenKind::comment, line_end()), true;
    if (cpp_ && starts("/*")) return add(TokenKind::comment, after("*/", at_ + 2)), true;
    const bool begins = at_ == 0 || text_[at_ - 1] == ' ' || text_[at_ - 1] == '\n';
    if (!cpp_ && text_[at_] == '#' && begins) return add(TokenKind::comment, line_end()), true;
    return false;
  }

  void directive() {
    std::size_t end = at_ + 1;
    while (end < text_.size() && is_word(text_[end])) ++end;
    const bool include = text_.substr(at_, end - at_) == "#include";
    add(TokenKind::keyword, end);
    if (!include) return;
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ < text_.size() && text_[at_] == '"') add(TokenKind::include, after("\"", at_ + 1));
    else if (at_ < text_.size() && text_[at_] == '<') add(TokenKind::string, after(">", at_));
  }

  void string(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
    if (end < text_.size() && text_[end] == quote) ++end;
    add(TokenKind::string, end);
  }

  void number() {
    std::size_t end = at_;
    while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.' || (text_[end] == '\'' && cpp_))) ++end;
    add(TokenKind::other, end);
  }

  void word() {
    std::size_t end = at_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    const std::string_view word = text_.substr(at_, end - at_);
    if (cpp_ && end < text_.size() && text_[end] == '"' && word.ends_with('R')) {  // R"mark( … )mark"
      const std::size_t open = text_.find('(', end);
      if (open != std::string_view::npos) {
        const std::string close = ")" + std::string(text_.substr(end + 1, open - end - 1)) + "\"";
        return add(TokenKind::string, after(close, open));
      }
    }
    const bool known = cpp_ ? std::find(cpp_words.begin(), cpp_words.end(), word) != cpp_words.end()
                            : std::find(script_words.begin(), script_words.end(), word) != script_words.end();
    add(known ? TokenKind::keyword : TokenKind::name, end);
  }

  std::string_view text_;
  bool cpp_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

bool is_cpp(std::string_view language) {
  for (const std::string_view each : {"cpp", "cuda", "c", "h", "cc", "cu", "cuh", "c++", "js", "javascript"})
    if (language == each) return true;
  return false;
}

std::string_view language_of(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (path.ends_with("CMakeLists.txt")) return "cmake";
  if (dot == std::string_view::npos) return "text";
  const std::string_view ending = path.substr(dot + 1);
  if (ending == "py") return "python";
  if (ending == "sh") return "sh";
  if (ending == "txt" || ending == "out" || ending == "md") return "text";
  return ending;
}

std::vector<Token> lex(std::string_view text, std::string_view language) {
  const bool script =
      language == "python" || language == "sh" || language == "bash" || language == "cmake" || language == "yaml";
  if (!is_cpp(language) && !script) return {};
  return Lexer(text, is_cpp(language)).run();
}

}  // namespace weave
