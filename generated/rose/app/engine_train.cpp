// Train the model of the first training run.

#include <memory>

#include "rose/app/engine_commands.h"
#include "rose/core/error.h"
#include "rose/trainer/demo.h"

namespace rose::app {

void add_train(CLI::App& app) {
  auto options = std::make_shared<trainer::DemoOptions>();
  auto demo = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("train", "Train a small model on text, from nothing");
  command->add_flag("--demo", *demo,
                    "Train the tiny transformer of the chapter \"A first training run\"");
  command
      ->add_option("--text", options->text,
                   "A text file, or a folder whose Markdown files are read")
      ->capture_default_str();
  command->add_option("--steps", options->steps, "Optimizer steps; 0 takes the demo's own number")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", options->seed, "Same seed, same run, to the bit")
      ->capture_default_str();
  command->add_option("--log", options->log,
                      "Write loss and rate of every step to this file, as JSON lines");
  command->callback([options, demo] {
    if (!*demo) {
      throw core::Error(core::Code::unsupported, "only `rose train --demo` can be trained so far")
          .in("train")
          .hint("it trains a tiny model on a text: rose train --demo --text FILE");
    }
    trainer::run_demo(*options);
  });
}

}  // namespace rose::app
