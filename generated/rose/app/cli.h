// What both executables do the same way.

#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>

namespace rose::app {

/// Parses, runs the chosen subcommand, and turns whatever goes wrong into a message on stderr and an exit status
/// (core::exit_code; 2 for a wrong command line).
int run(CLI::App& app, int argc, char** argv);

/// Runs body; an exception is described on stderr. Returns the exit status.
int guarded(const std::function<void()>& body);

/// `rose-engine` beside the running executable.
std::filesystem::path engine_path();

/// Printed at the end of every --help.
extern const char* const exit_statuses;

/// Writes all of text to stdout and flushes it. Throws core::Error (io) when stdout is full or closed.
void print(std::string_view text);

/// Standard input to its end, which must be UTF-8.
std::string read_stdin();

/// Throws core::Error (invalid_argument) naming `what` and the byte unless text is valid UTF-8.
void require_utf8(std::string_view text, std::string_view what);

}  // namespace rose::app
