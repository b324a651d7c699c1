// `tangle resolve`: a filter that adds the chapter line to every place in generated/ that it sees.
//
// It reads what compilers, tests, sanitizers, debuggers and profilers print:
//   generated/rose/core/json.cpp:12:5    generated/rose/x.cu(12)    File "generated/labs/x.py", line 12
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "options.h"

namespace tangle {
namespace {

struct Place {
  std::size_t end = 0;  ///< past the digits
  std::uint32_t line = 0, column = 0;
};

bool number(std::string_view text, std::size_t& at, std::uint32_t& value) {
  const auto [stop, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (error != std::errc()) return false;
  at = static_cast<std::size_t>(stop - text.data());
  return true;
}

/// What follows a path that ends at `at`: `:12`, `:12:5`, `(12)`, `(12,5)` or `", line 12`.
bool place_after(std::string_view text, std::size_t at, Place& place) {
  constexpr std::string_view python = "\", line ";
  const std::string_view rest = text.substr(at);
  const bool parenthesis = rest.starts_with('(');
  if (!parenthesis && !rest.starts_with(':') && !rest.starts_with(python)) return false;
  at += rest.starts_with(python) ? python.size() : 1;
  if (!number(text, at, place.line)) return false;
  std::size_t column = at + 1;
  if (text.substr(at).starts_with(parenthesis ? ',' : ':') && number(text, column, place.column)) at = column;
  if (parenthesis && text.substr(at).starts_with(')')) ++at;
  place.end = at;
  return place.line > 0;
}

class Resolver {
 public:
  explicit Resolver(const Options& options)
      : options_(options), mark_(options.out.substr(options.out.rfind('/') + 1) + "/") {}

  std::string line(std::string_view text) {
    std::string out;
    std::size_t done = 0;
    for (std::size_t at = text.find(mark_); at != std::string_view::npos; at = text.find(mark_, at + 1)) {
      if (at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) || std::strchr("_-.", text[at - 1])))
        continue;
      const std::size_t begin = at + mark_.size();
      const std::size_t end = std::min(text.find_first_of(" \t:(\"',;)\r\n\x1b", begin), text.size());
      Place place;
      if (!place_after(text, end, place)) continue;
      const std::string chapter = chapter_line(text.substr(begin, end - begin), place);
      if (chapter.empty()) continue;
      out += text.substr(done, place.end - done);
      out += " [" + chapter + "]";
      done = place.end;
    }
    out += text.substr(done);
    return out;
  }

 private:
  std::string chapter_line(std::string_view path, const Place& place) {
    if (!session_) {  // nobody pays for reading the book until a place is seen
      session_ = std::make_unique<Session>();
      whole_ = session_->load(options_);
    }
    if (!whole_) return {};
    const auto output = std::ranges::find(session_->outputs, path, &Output::path);
    if (output == session_->outputs.end()) return {};
    const Origin origin = origin_of(session_->program, *output, place.line, place.column);
    if (!origin.document) return {};
    const std::string out = origin.document->source->path + ":" + std::to_string(origin.line);
    return origin.column > 0 ? out + ":" + std::to_string(origin.column) : out;
  }

  const Options& options_;
  std::string mark_;
  std::unique_ptr<Session> session_;
  bool whole_ = false;
};

}  // namespace

int run_resolve(const Options& options) {
  Resolver resolver(options);
  char* line = nullptr;
  std::size_t room = 0;
  for (ssize_t size = 0; (size = ::getline(&line, &room, stdin)) > 0;) {
    const std::string resolved = resolver.line({line, static_cast<std::size_t>(size)});
    std::fwrite(resolved.data(), 1, resolved.size(), stdout);
    std::fflush(stdout);  // a build that is watched is seen line by line
  }
  std::free(line);
  return std::ferror(stdout) == 0 ? 0 : 1;
}

}  // namespace tangle
