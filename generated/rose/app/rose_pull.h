// Declare rose models pull.

#pragma once

#include <CLI/CLI.hpp>

namespace rose::app {

/// Adds `pull` to `rose models`.
void add_models_pull(CLI::App& models);

}  // namespace rose::app
