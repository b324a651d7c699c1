#include "output.h"

#include <cctype>
#include <filesystem>
#include <utility>

#include "language.h"
#include "text.h"

namespace tangle {
namespace {

std::string absolute(const std::string& path) { return std::filesystem::absolute(path).string(); }

/// Follows C++ text line by line and knows whether a directive may stand before the next line:
/// not within a raw string, a block comment, or a line that a backslash continues.
class Lexer {
 public:
  bool between_lines() const { return until_.empty() && !continued_; }

  void line(std::string_view text) {
    for (std::string_view rest = text; !rest.empty();) {
      if (until_.empty()) rest.remove_prefix(token(text.substr(0, text.size() - rest.size()), rest));
      if (until_.empty()) continue;
      const std::size_t found = rest.find(until_);
      rest.remove_prefix(found == std::string_view::npos ? rest.size() : found + std::exchange(until_, {}).size());
    }
    continued_ = text.ends_with('\\');
  }

 private:
  /// The length of the token that `rest` begins with. Sets `until_` where it goes on until a mark, perhaps lines below.
  std::size_t token(std::string_view before, std::string_view rest) {
    const char last = before.empty() ? ' ' : before.back();
    const bool in_name = std::isalnum(static_cast<unsigned char>(last)) || last == '_';
    if (rest.starts_with("//")) return rest.size();
    if (rest.starts_with("/*")) {
      until_ = "*/";
      return 2;
    }
    if (rest.starts_with("R\"") && (!in_name || std::string_view("uUL8").find(last) != std::string_view::npos)) {
      const std::size_t open = rest.find('(');
      if (open == std::string_view::npos) return rest.size();
      until_ = concat(')', rest.substr(2, open - 2), '"');
      return open + 1;
    }
    if (rest[0] != '"' && (rest[0] != '\'' || in_name)) return 1;
    std::size_t end = 1;
    while (end < rest.size() && rest[end] != rest[0]) end += rest[end] == '\\' ? 2 : 1;
    return std::min(end + 1, rest.size());
  }

  std::string until_;  // the mark that ends the raw string or block comment we are in
  bool continued_ = false;
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
  auto run = output.map.begin();
  bool due = false;  // a directive is owed before the next line that may have one
  for (std::uint32_t line = 1; !text.empty(); ++line) {
    for (; run != output.map.end() && run->line <= line; ++run) due = true;
    if (due && lexer.between_lines()) {
      const Origin origin = origin_of(program, output, line, 0);
      out += origin.document ? directive(origin.line, absolute(origin.document->source->path))
                             : directive(line, absolute(folder + "/" + output.path));
      due = false;
    }
    const std::string_view content = text.substr(0, text.find('\n'));
    const std::size_t size = std::min(content.size() + 1, text.size());
    lexer.line(content);
    out += text.substr(0, size);
    text.remove_prefix(size);
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
