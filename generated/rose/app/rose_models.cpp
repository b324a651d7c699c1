// List the models of this machine.

#include "rose/app/models.h"
#include "rose/app/rose_commands.h"
#include "rose/app/rose_pull.h"
#include "rose/core/progress.h"

namespace rose::app {

namespace {

// One line for a model, or what is wrong with it: a broken file must not hide the others.
std::string summary(const FoundModel& found) {
  try {
    const model::Checkpoint checkpoint = model::describe_checkpoint(found.path);
    return fmt::format("{} layers, hidden {}, vocabulary {}, context {}{}",
                       checkpoint.config.layers, checkpoint.config.hidden,
                       checkpoint.config.vocab_size, checkpoint.config.max_positions,
                       checkpoint.chat_template.empty() ? "" : ", chat");
  } catch (const std::exception& error) {
    return fmt::format("cannot be used: {}", error.what());
  }
}

void list_models() {
  const std::vector<FoundModel> models = find_models();
  std::string out;
  for (std::size_t i = 0; i < models.size(); ++i) {
    out +=
        fmt::format("{}{}\n    {}\n    {}, from {}\n", models[i].name, i == 0 ? "  (default)" : "",
                    summary(models[i]), models[i].path.string(), models[i].source);
  }
  print(out);
  if (models.empty()) find_model("");  // says what would help
}

}  // namespace

void add_models(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "models", "List the models found on this machine and where they come from");
  command->callback([command] {
    if (command->get_subcommands().empty()) list_models();
  });
  add_models_pull(*command);
}

}  // namespace rose::app
