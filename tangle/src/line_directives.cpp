#include "output.h"

#include <unistd.h>

#include <array>
#include <climits>

#include "language.h"

namespace tangle {
namespace {

std::string absolute(const std::string& path) {
  if (path.starts_with('/')) return path;
  std::array<char, PATH_MAX> folder{};
  return ::getcwd(folder.data(), folder.size()) ? std::string(folder.data()) + "/" + path : path;
}

/// Follows C++ text line by line and knows whether a directive may stand before the next line:
/// not within a raw string, a block comment, or a line that a backslash continues.
class Lexer {
 public:
  bool between_lines() const { return !comment_ && raw_end_.empty() && !continued_; }

  void line(std::string_view text) {
    std::size_t i = 0;
    while (i < text.size()) i = step(text, i);
    continued_ = raw_end_.empty() && text.ends_with('\\');
  }

 private:
  /// Reads one token from `i` on and returns where the next begins.
  std::size_t step(std::string_view text, std::size_t i) {
    if (comment_) return until(text, i, "*/", comment_);
    if (!raw_end_.empty()) {
      bool inside = true;
      const std::size_t next = until(text, i, raw_end_, inside);
      if (!inside) raw_end_.clear();
      return next;
    }
    const std::string_view rest = text.substr(i);
    if (rest.starts_with("//")) return text.size();
    if (rest.starts_with("/*")) {
      comment_ = true;
      return i + 2;
    }
    if (rest.starts_with("R\"") && (i == 0 || !name(text[i - 1]) || encoding(text, i))) return raw(text, i);
    if (rest[0] == '"' || (rest[0] == '\'' && (i == 0 || !name(text[i - 1])))) return quoted(text, i);
    return i + 1;
  }

  static bool name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  static bool encoding(std::string_view text, std::size_t i) {
    return text[i - 1] == 'u' || text[i - 1] == 'U' || text[i - 1] == 'L' || text[i - 1] == '8';
  }
  static std::size_t until(std::string_view text, std::size_t i, std::string_view end, bool& inside) {
    const std::size_t found = text.find(end, i);
    inside = found == std::string_view::npos;
    return inside ? text.size() : found + end.size();
  }
  std::size_t raw(std::string_view text, std::size_t i) {
    const std::size_t open = text.find('(', i);
    if (open == std::string_view::npos) return text.size();
    raw_end_ = ")" + std::string(text.substr(i + 2, open - i - 2)) + "\"";
    return open + 1;
  }
  static std::size_t quoted(std::string_view text, std::size_t i) {
    const char mark = text[i];
    for (++i; i < text.size() && text[i] != mark; ++i) {
      if (text[i] == '\\') ++i;
    }
    return std::min(i + 1, text.size());
  }

  bool comment_ = false, continued_ = false;
  std::string raw_end_;
};

std::string directive(std::uint32_t line, const std::string& path) {
  std::string out = "#line " + std::to_string(line) + " \"";
  for (const char c : path) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"\n";
}

std::string with_directives(const Program& program, const std::string& folder, const Output& output) {
  std::string out;
  Lexer lexer;
  std::string_view text = output.text;
  std::size_t run = 0;
  bool due = true;  // a directive is owed before the next line that may have one
  for (std::uint32_t line = 1; !text.empty(); ++line) {
    while (run + 1 < output.map.size() && output.map[run + 1].line <= line) {
      ++run;
      due = true;
    }
    if (due && lexer.between_lines() && !output.map.empty()) {
      const Origin origin = origin_of(program, output, line, 0);
      out += origin.document ? directive(origin.line, absolute(origin.document->source->path))
                             : directive(line, absolute(folder + "/" + output.path));
      due = false;
    }
    const std::size_t end = std::min(text.find('\n'), text.size());
    lexer.line(text.substr(0, end));
    out += text.substr(0, std::min(end + 1, text.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

void add_line_directives(const Program& program, const std::string& folder, std::vector<Output>& outputs) {
  for (Output& output : outputs) {
    if (output.kind == OutputKind::expected || family_of_path(output.path) != "cpp") continue;
    output.text = with_directives(program, folder, output);
  }
}

}  // namespace tangle
