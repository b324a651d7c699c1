// Turn a command line into one exit status.

#include "rose/app/cli.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "rose/core/error.h"
#include "rose/core/utf8.h"

namespace rose::app {

using core::Code;
using core::Error;

const char* const exit_statuses =
    "Exit status: 0 success, 1 internal error, 2 wrong arguments, 3 not found, 4 corrupt file, 5 "
    "unsupported,\n"
    "6 disk, memory or permissions, 130 interrupted.";

// Refuse bytes that are no text.
void require_utf8(std::string_view text, std::string_view what) {
  for (std::size_t at = 0; at < text.size();) {
    const core::Utf8Step step = core::decode_utf8(text, at);
    if (!step.valid) {
      throw Error(Code::invalid_argument, fmt::format("byte {} (0x{:02x}) is not valid UTF-8", at,
                                                      static_cast<unsigned char>(text[at])))
          .in(std::string(what))
          .hint("text must be UTF-8; `iconv -t UTF-8` converts it");
    }
    at += step.length;
  }
}

// Parse, run, and end with one status.
int guarded(const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rose: {}\n", core::describe(error));
    return core::exit_code(error);
  }
}

int run(CLI::App& app, int argc, char** argv) {
  app.footer(exit_statuses);
  app.require_subcommand(1);
  for (CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    sub->footer(exit_statuses);
  int usage = 0;
  const int status = guarded([&] {
    for (int i = 1; i < argc; ++i) require_utf8(argv[i], fmt::format("argument {}", i));
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      usage = app.exit(error) == 0 ? 0 : 2;
    }
  });
  return status != 0 ? status : usage;
}

std::filesystem::path engine_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "rose-engine";
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Error(Code::io, "cannot write the output").in("standard output");
  }
}

std::string read_stdin() {
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  require_utf8(text, "standard input");
  return text;
}

}  // namespace rose::app
