// Rewrite a checkpoint in another format.

#include <memory>
#include <optional>

#include "rose/app/models.h"
#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/progress.h"
#include "rose/model/files/convert.h"

namespace rose::app {

namespace {

struct ConvertArguments {
  std::string from, to, type;
  bool overwrite = false;
};

void convert(const ConvertArguments& arguments) {
  model::ConvertOptions options;
  if (!arguments.type.empty()) options.dtype = dtype_named(arguments.type);
  options.overwrite = arguments.overwrite;
  std::optional<core::Progress> progress;  // the total is known with the first tensor
  options.progress = [&](std::uint64_t done, std::uint64_t total, std::string_view tensor) {
    if (!progress) progress.emplace("converting", static_cast<std::int64_t>(total), "bytes");
    progress->update(static_cast<std::int64_t>(done), tensor);
  };
  model::convert(find_model(arguments.from), arguments.to, options);
  if (progress) progress->finish();
  fmt::print(stderr, "wrote {}\n", arguments.to);
}

}  // namespace

// Declare the command.
void add_convert(CLI::App& app) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command =
      app.add_subcommand("convert", "Convert between Hugging Face folders and GGUF files");
  command
      ->add_option("from", arguments->from,
                   "Model: path, org/name or a name that `rose models` lists")
      ->required();
  command
      ->add_option("to", arguments->to,
                   "A name ending in .gguf makes a GGUF file, anything else a folder")
      ->required();
  command->add_option("--type", arguments->type,
                      "Type of the matrices: f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1; as they "
                      "are when absent");
  command->add_flag("--overwrite", arguments->overwrite, "Replace an existing file");
  command->callback([arguments] { convert(*arguments); });
}

}  // namespace rose::app
