#include "fence.h"

#include <algorithm>

#include "text.h"

namespace tangle {
namespace {

/// Where a line's contents begin: an offset and the column it stands in.
struct Cursor {
  std::uint32_t at = 0;
  std::uint32_t column = 0;
};

/// Names between blanks.
constexpr std::string_view html_blocks =
    " address article aside blockquote body center details div dl fieldset figure footer form header main nav ol p "
    "section summary table ul ";

class Scanner {
 public:
  Scanner(std::string_view text, std::uint32_t offset, std::uint32_t line)
      : text_(text), next_(offset), line_(line - 1) {}

  std::vector<FenceLines> run() {
    while (advance()) block_line();
    return std::move(fences_);
  }

 private:
  /// Steps to the next line; false at the end of the text.
  bool advance() {
    if (next_ >= text_.size()) return false;
    begin_ = next_;
    const std::size_t found = text_.find('\n', begin_);
    end_ = static_cast<std::uint32_t>(std::min(found, text_.size()));
    next_ = static_cast<std::uint32_t>(std::min<std::size_t>(end_ + 1, text_.size()));
    ++line_;
    return true;
  }

  Cursor skip_blanks(Cursor from) const {
    for (; from.at < end_; ++from.at) {
      const char c = text_[from.at];
      if (c == ' ') ++from.column;
      else if (c == '\t') from.column += 4 - from.column % 4;
      else if (c != '\r' || from.at + 1 != end_) break;
    }
    return from;
  }

  bool blank(Cursor from) const { return from.at >= end_; }
  /// The content column of the innermost open list item.
  std::uint32_t container() const { return lists_.empty() ? 0 : lists_.back(); }

  std::uint32_t run_length(std::uint32_t at, char mark) const {
    const std::size_t end = text_.find_first_not_of(mark, at);
    return static_cast<std::uint32_t>(std::min<std::size_t>(end, end_)) - at;
  }

  /// Looks at one line outside of any fence.
  void block_line() {
    Cursor content = skip_blanks({begin_, 0});
    if (html_line(content)) return;
    if (blank(content)) {
      after_blank_ = true;
      return;
    }
    leave_lists(content);
    FenceLines fence;
    std::uint32_t left = container();
    while (!blank(content) && content.column < left + 4) {
      if (quote_marker(content)) fence.quoted = true;
      else if (!fence.quoted && list_marker(content)) fence.after_marker = true;
      else break;
      left = fence.quoted ? content.column : container();
      content = skip_blanks(content);
    }
    after_blank_ = false;
    if (content.column < left + 4 && opens_fence(content, fence)) fence_body(fence);
  }

  /// Follows raw HTML blocks, in which backticks mean nothing. True when the line belongs to one.
  bool html_line(Cursor content) {
    const std::string_view line = text_.substr(content.at, end_ - content.at);
    if (!in_html_) {
      if (line.size() < 2 || line[0] != '<' || content.column >= container() + 4) return false;
      std::string_view name = line.substr(line[1] == '/' ? 2 : 1);
      name = name.substr(0, name.find_first_of(" \t>/"));
      if (line.starts_with("<!--")) html_end_ = "-->";
      else if (name == "pre") html_end_ = "</pre>";
      else if (name == "script") html_end_ = "</script>";
      else if (name == "style") html_end_ = "</style>";
      else if (name == "textarea") html_end_ = "</textarea>";
      else if (!name.empty() && html_blocks.find(concat(' ', name, ' ')) != std::string_view::npos) html_end_ = "";
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
  void leave_lists(Cursor content) {
    const char c = text_[content.at];
    const bool starts_block = c == '`' || c == '~' || c == '#' || c == '>';
    if (after_blank_ || starts_block) close_lists(content.column);
  }

  void close_lists(std::uint32_t column) {
    while (!lists_.empty() && column < lists_.back()) lists_.pop_back();
  }

  bool list_marker(Cursor& content) {
    std::uint32_t at = content.at;
    if (std::string_view("-+*").find(text_[at]) == std::string_view::npos) {
      while (at < end_ && at - content.at < 9 && text_[at] >= '0' && text_[at] <= '9') ++at;
      if (at == content.at || at >= end_ || (text_[at] != '.' && text_[at] != ')')) return false;
    }
    ++at;
    if (at < end_ && text_[at] != ' ' && text_[at] != '\t') return false;
    close_lists(content.column);
    const Cursor after{at, content.column + at - content.at};
    const Cursor rest = skip_blanks(after);
    const bool narrow = !blank(rest) && rest.column <= after.column + 4;
    lists_.push_back(narrow ? rest.column : after.column + 1);
    content = narrow ? rest : after;
    return true;
  }

  bool quote_marker(Cursor& content) const {
    if (blank(content) || text_[content.at] != '>') return false;
    const std::uint32_t width = content.at + 1 < end_ && text_[content.at + 1] == ' ' ? 2 : 1;
    content = {content.at + width, content.column + width};
    return true;
  }

  bool opens_fence(Cursor content, FenceLines& fence) {
    if (blank(content)) return false;
    mark_ = text_[content.at];
    if (mark_ != '`' && mark_ != '~') return false;
    length_ = run_length(content.at, mark_);
    if (length_ < 3) return false;
    std::string_view info = text_.substr(content.at + length_, end_ - content.at - length_);
    if (info.ends_with('\r')) info.remove_suffix(1);
    info = trimmed(info);
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
    return true;
  }

  /// Reads on to the closing run, the end of the container or the end of the text.
  void fence_body(FenceLines fence) {
    while (fence.how == FenceEnd::file && advance()) {
      Cursor content = skip_blanks({begin_, 0});
      if (leaves_container(content, fence.quoted)) {
        next_ = begin_;  // the line is looked at again, outside
        --line_;
        fence.how = FenceEnd::container;
        break;
      }
      while (fence.quoted && quote_marker(content)) content = skip_blanks(content);
      fence.end = next_;
      if (closes(content)) {
        fence.how = FenceEnd::closed;
      } else {
        fence.body_end = next_;
        ++fence.body_lines;
      }
    }
    after_blank_ = true;
    fences_.push_back(fence);
  }

  bool leaves_container(Cursor content, bool quoted) const {
    if (quoted) return blank(content) || text_[content.at] != '>';
    return !blank(content) && content.column < container();
  }

  bool closes(Cursor content) const {
    if (blank(content) || text_[content.at] != mark_ || content.column >= container() + 4) return false;
    const std::uint32_t length = run_length(content.at, mark_);
    return length >= length_ && blank(skip_blanks({content.at + length, 0}));
  }

  std::string_view text_;
  std::uint32_t begin_ = 0, end_ = 0, next_ = 0, line_ = 0;  // of the current line
  std::vector<std::uint32_t> lists_;                         // content columns of open list items
  std::string_view html_end_;                                // what ends the raw HTML block
  bool in_html_ = false, after_blank_ = true;
  char mark_ = '`';  // of the open fence
  std::uint32_t length_ = 3;
  std::vector<FenceLines> fences_;
};

}  // namespace

std::vector<FenceLines> scan_fences(std::string_view text, std::uint32_t offset, std::uint32_t line) {
  return Scanner(text, offset, line).run();
}

}  // namespace tangle
