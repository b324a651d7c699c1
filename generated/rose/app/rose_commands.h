// The commands of the front.

#pragma once

#include "rose/app/cli.h"

namespace rose::app {

void add_tokenize(CLI::App& app);
void add_convert(CLI::App& app);
void add_data(CLI::App& app);
void add_models(CLI::App& app);
void add_doctor(CLI::App& app);
void add_bench(CLI::App& app);
void add_serve(CLI::App& app);
void add_bench_serve(CLI::App& app);
void add_launch(CLI::App& app);
void add_rl(CLI::App& app);

}  // namespace rose::app
