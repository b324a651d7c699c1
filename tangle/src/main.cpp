// tangle: turns the chapters of the book into its program.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

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

struct ValueOption {
  std::string_view name;
  std::string Options::*value;
};

/// Options that take a value, as `--name VALUE` or `--name=VALUE`.
constexpr std::array value_options = {
    ValueOption{"--book", &Options::book},     ValueOption{"--out", &Options::out},
    ValueOption{"--until", &Options::until},   ValueOption{"--lines", &Options::lines},
    ValueOption{"--map", &Options::map},       ValueOption{"--book-json", &Options::book_json},
    ValueOption{"--output", &Options::output}, ValueOption{"--format", &Options::format_name},
};

bool set_flag(Options& options, std::string_view name) {
  if (name == "--json") options.json = true;
  else if (name == "--cmake") options.cmake = true;
  else if (name == "--quiet") options.quiet = true;
  else if (name == "--since-emit") options.since_emit = true;
  else if (name == "--dot") options.json = false;
  else return false;
  return true;
}

/// Returns what is wrong, or an empty string.
std::string parse(std::span<char*> words, Options& options) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const std::string_view name = word.substr(0, word.find('='));
    const auto option = std::ranges::find(value_options, name, &ValueOption::name);
    if (option != value_options.end()) {
      std::string& value = options.*option->value;
      if (name.size() < word.size()) value = word.substr(name.size() + 1);
      else if (i + 1 < words.size()) value = words[++i];
      else return concat(name, " needs a value");
      if (value.empty()) return concat(name, " is empty");
    } else if (word.starts_with("--")) {
      if (!set_flag(options, word)) return "unknown option " + printable(word);
    } else if (options.command.empty()) {
      options.command = word;
    } else {
      options.words.emplace_back(word);
    }
  }
  for (std::string* folder : {&options.book, &options.out}) {
    while (folder->size() > 1 && folder->ends_with('/')) folder->pop_back();
  }
  if (!options.lines.empty() && options.lines != "book") return "--lines is \"book\" or not given";
  if (options.format_name == "json") options.format = MessageFormat::json;
  else if (options.format_name == "github") options.format = MessageFormat::github;
  else if (options.format_name != "gcc") return "--format is gcc, json or github";
  return {};
}

/// Takes memory in few large pages: faulting small ones in costs a third of the time of a whole run.
void prepare_heap() {
#ifdef __GLIBC__
  constexpr std::size_t huge_page = 2u << 20;
  constexpr std::size_t heap = 12u << 20;
  ::mallopt(M_TRIM_THRESHOLD, static_cast<int>(2 * heap));
  ::mallopt(M_MMAP_THRESHOLD, static_cast<int>(2 * heap));
  char* all = static_cast<char*>(std::malloc(heap));  // so the heap grows by all of it, and nothing in it is touched
  const std::size_t gap = (huge_page - reinterpret_cast<std::size_t>(all) % huge_page) % huge_page;
  ::madvise(all + gap, heap - huge_page, MADV_HUGEPAGE);
  std::free(all);
  static const std::unique_ptr<char[]> unused(new char[gap]);  // what follows begins with a large page
#endif
}

int run(std::span<char*> words) {
  const auto asks = [](std::string_view word) { return word == "--help" || word == "-h"; };
  if (std::any_of(words.begin() + 1, words.end(), asks)) {
    usage(stdout);
    return 0;
  }
  Options options;
  const std::string wrong = parse(words, options);
  if (!wrong.empty()) return usage_error(wrong);
  if (options.command.empty()) {
    usage(stderr);
    return 2;
  }
  const auto found = std::ranges::find(commands, options.command, &Command::name);
  if (found != commands.end()) return found->run(options);
  std::vector<std::string_view> names(commands.size());
  std::ranges::transform(commands, names.begin(), &Command::name);
  const std::string near = did_you_mean(options.command, names);
  return usage_error("there is no command " + quoted(printable(options.command)) + (near.empty() ? "" : "; " + near));
}

}  // namespace
}  // namespace tangle

int main(int count, char** words) {
  tangle::prepare_heap();
  return tangle::run({words, static_cast<std::size_t>(count)});
}
