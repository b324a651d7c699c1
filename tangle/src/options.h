// The command line, and what every command does first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "book.h"
#include "diagnostics.h"
#include "output.h"
#include "program.h"

namespace tangle {

struct Options {
  std::string command;
  std::string book = "book";
  std::string out = "generated";
  std::string until;      ///< a chapter; empty: all of them
  std::string lines;      ///< "book": write #line directives
  std::string map;        ///< also write the source map to this file
  std::string book_json;  ///< also write book.json to this file
  std::string output;     ///< where a command's text goes; empty: standard output
  bool json = false, cmake = false, quiet = false;
  bool since_emit = false;  ///< stitch: the files were edited after the last emit, whatever git says
  std::string format_name = "gcc";
  MessageFormat format = MessageFormat::gcc;
  std::vector<std::string> words;  ///< what is no option
};

/// The linked book and what it produces. Everything points into `book`, so a session is not moved.
struct Session {
  Diagnostics diagnostics;
  Book book;
  Program program;
  std::vector<Output> outputs;

  /// Reads, links and produces. False when there are errors; the caller reports.
  bool load(const Options& options);
  /// Prints the messages to standard error, and returns the exit code: 0, or 1 with errors.
  int report(const Options& options);
};

/// Prints `text` to `options.output` (written only when it changes) or standard output. Returns the exit code.
int print(const Options& options, std::string_view text);

int run_emit(const Options& options);
int run_check(const Options& options);
int run_list(const Options& options);
int run_graph(const Options& options);
int run_book_json(const Options& options);
int run_stitch(const Options& options);
int run_fmt(const Options& options);
int run_resolve(const Options& options);

}  // namespace tangle
