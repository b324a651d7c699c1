// The engine: what needs a model in memory.

#include <torch/headeronly/version.h>

#include "rose/app/engine_commands.h"

int main(int argc, char** argv) {
  CLI::App app("RoseLLM's engine. Started by `rose`, which is the program to use.", "rose");
  app.set_version_flag("--version", "rose-engine " ROSE_VERSION ", LibTorch " TORCH_VERSION);
  rose::app::add_generate(app);
  rose::app::add_chat(app);
  rose::app::add_train(app);
  rose::app::add_compare(app);
  rose::app::add_serve_engine(app);
  rose::app::add_export(app);
  rose::app::add_eval(app);
  return rose::app::run(app, argc, argv);
}
