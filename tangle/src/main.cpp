// tangle: turns the chapters of the book into its program.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#ifdef __GLIBC__
#include <malloc.h>
#include <sys/mman.h>
#endif

#include "options.h"
#include "text.h"

namespace tangle {
namespace {

struct Command {
  std::string_view name;
  int (*run)(const Options&);
  std::string_view summary;
};

constexpr std::array commands = {
    Command{"emit", run_emit, "write the outputs that changed, remove those no longer produced"},
    Command{"check", run_check, "compare the outputs with the book; exit code 1 when they differ"},
    Command{"list", run_list, "the outputs by chapter (--json, --cmake)"},
    Command{"graph", run_graph, "graph chapters | graph chunks, as DOT (--json)"},
    Command{"book-json", run_book_json, "the model of the book as JSON"},
    Command{"stitch", run_stitch, "take edits of the outputs back into the chapters, exactly or not at all"},
    Command{"fmt", run_fmt, "format the C++ outputs with clang-format, and stitch"},
    Command{"resolve", run_resolve, "a filter: add the chapter line to every generated/FILE:LINE"},
};

void usage(std::FILE* to) {
  std::fputs("usage: tangle COMMAND [options]\n\n", to);
  for (const Command& command : commands) {
    std::fprintf(to, "  %-10s %s\n", std::string(command.name).c_str(), std::string(command.summary).c_str());
  }
  std::fputs(
      "\n"
      "  --book DIR       where the chapters are (book); a folder without book.yaml is read in name order\n"
      "  --out DIR        where the outputs are (generated)\n"
      "  --until CHAPTER  the program as it stands at the end of a chapter (needs --out)\n"
      "  --lines=book     emit: #line directives that name chapter lines (needs --out)\n"
      "  --map FILE       emit: also write the source map\n"
      "  --book-json FILE emit: also write book.json\n"
      "  --output FILE    list, graph, book-json: write there, when it changes, instead of printing\n"
      "  --format=gcc|json|github   how messages look\n"
      "  --since-emit     stitch: where a chapter and its file both changed since the last commit, take the file's "
      "side\n"
      "  --quiet          no summary line\n"
      "\n"
      "exit codes: 0 good, 1 errors or differences, 2 usage\n",
      to);
}

int usage_error(const std::string& words) {
  std::fprintf(stderr, "tangle: %s (tangle --help lists the options)\n", words.c_str());
  return 2;
}

/// Options that take a value, as `--name VALUE` or `--name=VALUE`.
std::string* value_option(Options& options, std::string_view name) {
  if (name == "--book") return &options.book;
  if (name == "--out") return &options.out;
  if (name == "--until") return &options.until;
  if (name == "--lines") return &options.lines;
  if (name == "--map") return &options.map;
  if (name == "--book-json") return &options.book_json;
  if (name == "--output") return &options.output;
  return nullptr;
}

bool flag_option(Options& options, std::string_view name) {
  if (name == "--json") options.json = true;
  else if (name == "--cmake") options.cmake = true;
  else if (name == "--quiet") options.quiet = true;
  else if (name == "--since-emit") options.since_emit = true;
  else if (name == "--dot") options.json = false;
  else return false;
  return true;
}

/// Returns what is wrong, or an empty string.
std::string parse(int count, char** words, Options& options) {
  std::string format = "gcc";
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const std::string_view name = word.substr(0, word.find('='));
    std::string* value = name == "--format" ? &format : value_option(options, name);
    if (value) {
      if (name.size() < word.size()) *value = word.substr(name.size() + 1);
      else if (i + 1 < count) *value = words[++i];
      else return std::string(name) + " needs a value";
      if (value->empty()) return std::string(name) + " is empty";
    } else if (word.starts_with("--")) {
      if (!flag_option(options, word)) return "unknown option " + printable(word);
    } else if (options.command.empty()) {
      options.command = word;
    } else {
      options.words.emplace_back(word);
    }
  }
  if (!options.lines.empty() && options.lines != "book") return "--lines is \"book\" or not given";
  if (format == "json") options.format = MessageFormat::json;
  else if (format == "github") options.format = MessageFormat::github;
  else if (format != "gcc") return "--format is gcc, json or github";
  return {};
}

/// Takes memory in few large pages: faulting small ones in costs a third of the time of a whole run.
void prepare_heap() {
#ifdef __GLIBC__
  constexpr std::size_t huge_page = 2u << 20;
  constexpr std::size_t heap = 12u << 20;
  ::mallopt(M_TOP_PAD, static_cast<int>(heap));
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(2 * heap));
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(heap));
  void* top = std::malloc(huge_page);  // more than there is, so that the heap grows by all of `heap`
  const std::size_t address = reinterpret_cast<std::size_t>(top);
  const std::size_t begin = (address + huge_page - 1) / huge_page * huge_page;
  std::free(top);
  static const std::unique_ptr<char[]> below(new char[begin - address + 1]);  // what follows is aligned
  ::madvise(reinterpret_cast<void*>(begin), heap - huge_page, MADV_HUGEPAGE);
#endif
}

int run(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--help") == 0 || std::strcmp(words[i], "-h") == 0) {
      usage(stdout);
      return 0;
    }
  }
  const std::string wrong = parse(count, words, options);
  if (!wrong.empty()) return usage_error(wrong);
  if (options.command.empty()) {
    usage(stderr);
    return 2;
  }
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const Command& command) { return command.name == options.command; });
  if (found != commands.end()) return found->run(options);
  std::vector<std::string_view> names;
  for (const Command& command : commands) names.push_back(command.name);
  const auto near = nearest(options.command, names);
  return usage_error("there is no command \"" + printable(options.command) + "\"" +
                     (near.empty() ? "" : "; did you mean " + join_or(near) + "?"));
}

}  // namespace
}  // namespace tangle

int main(int count, char** words) {
  tangle::prepare_heap();
  return tangle::run(count, words);
}
