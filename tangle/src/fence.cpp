#include "fence.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "text.h"

namespace tangle {
namespace {

/// Where a line's contents begin: an offset and the column it stands in.
struct Cursor {
  std::uint32_t at = 0;
  std::uint32_t column = 0;
};

class Scanner {
 public:
  Scanner(std::string_view text, std::uint32_t offset, std::uint32_t line)
      : text_(text), next_(offset), line_(line - 1) {}

  std::vector<FenceLines> run() {
    while (advance()) block_line();
    return std::move(fences_);
  }

 private:
  bool advance();
  Cursor skip_blanks(Cursor from) const;
  bool blank(Cursor from) const { return from.at >= end_; }
  void block_line();
  bool html_line(Cursor content);
  void leave_lists(Cursor content);
  bool list_marker(Cursor& content);
  bool quote_marker(Cursor& content) const;
  bool opens_fence(Cursor content, FenceLines& fence);
  void fence_body(FenceLines fence);
  bool leaves_container(Cursor content, bool quoted, std::uint32_t container) const;
  bool closes(Cursor content, std::uint32_t container) const;
  std::uint32_t run_length(std::uint32_t at, char mark) const;

  std::string_view text_;
  std::uint32_t begin_ = 0, end_ = 0, next_ = 0, line_ = 0;  // of the current line
  std::vector<std::uint32_t> lists_;                         // content columns of open list items
  std::string_view html_end_;                                // what ends the raw HTML block
  bool in_html_ = false, after_blank_ = true;
  char mark_ = '`';
  std::uint32_t length_ = 3;
  std::vector<FenceLines> fences_;
};

/// Steps to the next line; false at the end of the text.
bool Scanner::advance() {
  if (next_ >= text_.size()) return false;
  begin_ = next_;
  const void* found = std::memchr(text_.data() + begin_, '\n', text_.size() - begin_);
  const std::size_t end =
      found ? static_cast<std::size_t>(static_cast<const char*>(found) - text_.data()) : text_.size();
  end_ = static_cast<std::uint32_t>(end);
  next_ = static_cast<std::uint32_t>(found ? end + 1 : end);
  ++line_;
  return true;
}

Cursor Scanner::skip_blanks(Cursor from) const {
  for (; from.at < end_; ++from.at) {
    const char c = text_[from.at];
    if (c == ' ') ++from.column;
    else if (c == '\t') from.column += 4 - from.column % 4;
    else if (c != '\r' || from.at + 1 != end_) break;
  }
  return from;
}

std::uint32_t Scanner::run_length(std::uint32_t at, char mark) const {
  std::uint32_t length = 0;
  while (at + length < end_ && text_[at + length] == mark) ++length;
  return length;
}

/// Looks at one line outside of any fence.
void Scanner::block_line() {
  Cursor content = skip_blanks({begin_, 0});
  if (html_line(content)) return;
  if (blank(content)) {
    after_blank_ = true;
    return;
  }
  leave_lists(content);
  bool quoted = false, marked = false;
  std::uint32_t container = lists_.empty() ? 0 : lists_.back();
  while (content.at < end_ && content.column < container + 4) {
    if (quote_marker(content)) {
      quoted = true;
    } else if (!quoted && list_marker(content)) {
      marked = true;
    } else {
      break;
    }
    container = quoted ? content.column : lists_.back();
    content = skip_blanks(content);
  }
  after_blank_ = false;
  FenceLines fence;
  if (content.column >= container + 4 || !opens_fence(content, fence)) return;
  fence.quoted = quoted;
  fence.after_marker = marked;
  fence_body(fence);
}

/// Follows raw HTML blocks, in which backticks mean nothing. True when the line belongs to one.
bool Scanner::html_line(Cursor content) {
  static constexpr std::array<std::string_view, 22> blocks = {
      "address", "article",  "aside",   "blockquote", "body",  "center", "details", "div",
      "dl",      "fieldset", "figure",  "footer",     "form",  "header", "main",    "nav",
      "ol",      "p",        "section", "summary",    "table", "ul"};
  const std::string_view line = text_.substr(content.at, end_ - content.at);
  if (!in_html_) {
    const std::uint32_t container = lists_.empty() ? 0 : lists_.back();
    if (line.size() < 2 || line[0] != '<' || content.column >= container + 4) return false;
    std::string_view name = line.substr(line[1] == '/' ? 2 : 1);
    name = name.substr(0, name.find_first_of(" \t>/"));
    if (line.starts_with("<!--")) html_end_ = "-->";
    else if (name == "pre") html_end_ = "</pre>";
    else if (name == "script") html_end_ = "</script>";
    else if (name == "style") html_end_ = "</style>";
    else if (name == "textarea") html_end_ = "</textarea>";
    else if (std::find(blocks.begin(), blocks.end(), name) != blocks.end()) html_end_ = "";
    else return false;
    in_html_ = true;
  }
  if (html_end_.empty() ? line.empty() : line.find(html_end_) != std::string_view::npos) {
    in_html_ = false;
    after_blank_ = line.empty();
  }
  return true;
}

/// Closes the list items that this line stands left of. A paragraph may continue lazily.
void Scanner::leave_lists(Cursor content) {
  const char c = text_[content.at];
  const bool starts_block = c == '`' || c == '~' || c == '#' || c == '>';
  if (!after_blank_ && !starts_block && !lists_.empty()) return;
  while (!lists_.empty() && content.column < lists_.back()) lists_.pop_back();
}

bool Scanner::list_marker(Cursor& content) {
  std::uint32_t at = content.at;
  if (text_[at] == '-' || text_[at] == '+' || text_[at] == '*') {
    ++at;
  } else {
    while (at < end_ && at - content.at < 9 && text_[at] >= '0' && text_[at] <= '9') ++at;
    if (at == content.at || at >= end_ || (text_[at] != '.' && text_[at] != ')')) return false;
    ++at;
  }
  const std::uint32_t width = at - content.at;
  if (at < end_ && text_[at] != ' ' && text_[at] != '\t') return false;
  while (!lists_.empty() && content.column < lists_.back()) lists_.pop_back();
  const Cursor rest = skip_blanks({at, content.column + width});
  const bool narrow = !blank(rest) && rest.column <= content.column + width + 4;
  const std::uint32_t column = narrow ? rest.column : content.column + width + 1;
  lists_.push_back(column);
  content = narrow ? rest : Cursor{at, content.column + width};
  return true;
}

bool Scanner::quote_marker(Cursor& content) const {
  if (content.at >= end_ || text_[content.at] != '>') return false;
  ++content.at;
  ++content.column;
  if (content.at < end_ && text_[content.at] == ' ') {
    ++content.at;
    ++content.column;
  }
  return true;
}

bool Scanner::opens_fence(Cursor content, FenceLines& fence) {
  if (content.at >= end_) return false;
  mark_ = text_[content.at];
  if (mark_ != '`' && mark_ != '~') return false;
  length_ = run_length(content.at, mark_);
  if (length_ < 3) return false;
  const std::string_view info = [&] {
    std::string_view rest = text_.substr(content.at + length_, end_ - content.at - length_);
    if (rest.ends_with('\r')) rest.remove_suffix(1);
    return trimmed(rest);
  }();
  if (mark_ == '`' && info.find('`') != std::string_view::npos) {
    if (info.find("{#") == std::string_view::npos) return false;
    fence.broken = true;
  }
  fence.line = line_;
  fence.open = content.at;
  fence.info_begin = static_cast<std::uint32_t>(info.data() - text_.data());
  fence.info_end = fence.info_begin + static_cast<std::uint32_t>(info.size());
  fence.body_begin = fence.body_end = fence.end = next_;
  fence.indent = content.column;
  fence.tilde = mark_ == '~';
  return true;
}

/// Reads on to the closing run, the end of the container or the end of the text.
void Scanner::fence_body(FenceLines fence) {
  const std::uint32_t container = lists_.empty() ? 0 : lists_.back();
  while (advance()) {
    Cursor content = skip_blanks({begin_, 0});
    if (leaves_container(content, fence.quoted, container)) {
      next_ = begin_;  // the line is looked at again, outside
      --line_;
      fence.how = FenceEnd::container;
      break;
    }
    while (fence.quoted && quote_marker(content)) content = skip_blanks(content);
    if (closes(content, container)) {
      fence.how = FenceEnd::closed;
      fence.end = next_;
      break;
    }
    fence.body_end = fence.end = next_;
    ++fence.body_lines;
  }
  after_blank_ = true;
  fences_.push_back(fence);
}

bool Scanner::leaves_container(Cursor content, bool quoted, std::uint32_t container) const {
  if (quoted) return blank(content) || text_[content.at] != '>';
  return !blank(content) && content.column < container;
}

bool Scanner::closes(Cursor content, std::uint32_t container) const {
  if (blank(content) || text_[content.at] != mark_ || content.column >= container + 4) {
    return false;
  }
  const std::uint32_t length = run_length(content.at, mark_);
  return length >= length_ && blank(skip_blanks({content.at + length, 0}));
}

}  // namespace

std::vector<FenceLines> scan_fences(std::string_view text, std::uint32_t offset, std::uint32_t line) {
  return Scanner(text, offset, line).run();
}

}  // namespace tangle
