// Continue a text.

#include <memory>

#include "rose/app/engine_commands.h"
#include "rose/app/engine_options.h"
#include "rose/core/error.h"

#include "rose/app/engine_batch.h"

namespace rose::app {

namespace {

struct GenerateArguments {
  EngineOptions engine;
  std::string prompt;
  BatchOptions batch;
};

void generate(const GenerateArguments& arguments) {
  model::validate(arguments.engine.generate.sampling);
  if (!arguments.batch.prompts.empty()) return generate_batch(arguments.engine, arguments.batch);
  if (read_speculation(arguments.batch).tokens > 0)
    return generate_one(arguments.engine, arguments.batch,
                        arguments.prompt.empty() ? read_stdin() : arguments.prompt);
  const std::string prompt = arguments.prompt.empty() ? read_stdin() : arguments.prompt;
  LoadedModel model(arguments.engine);
  const auto prefix = model.tokenizer().prefix();
  std::vector<std::int32_t> ids(prefix.begin(), prefix.end());
  model.tokenizer().encode(prompt, true, ids);
  catch_interrupts();
  model.stream(ids, arguments.engine);
  print("\n");
  if (take_interrupt()) throw core::Error(core::Code::cancelled, "interrupted");
}

}  // namespace

void add_generate(CLI::App& app) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text");
  command->add_option("prompt", arguments->prompt,
                      "The text to continue; standard input when absent");
  add_engine_options(*command, arguments->engine);
  add_batch_options(*command, arguments->batch);
  command->callback([arguments] { generate(*arguments); });
}

}  // namespace rose::app
