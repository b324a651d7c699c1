// The commands of the engine.

#pragma once

#include "rose/app/cli.h"

namespace rose::app {

void add_generate(CLI::App& app);
void add_chat(CLI::App& app);
void add_train(CLI::App& app);
void add_compare(CLI::App& app);
void add_serve_engine(CLI::App& app);
void add_export(CLI::App& app);
void add_eval(CLI::App& app);

}  // namespace rose::app
