// Write a model and its adapter as one model.

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "rose/app/engine_commands.h"
#include "rose/app/models.h"
#include "rose/core/progress.h"
#include "rose/model/merge_adapter.h"

namespace rose::app {

namespace {

struct ExportArguments {
  std::string model, adapter, out, type;
  bool overwrite = false;
};

void write_merged(const ExportArguments& a) {
  model::ConvertOptions options;
  if (!a.type.empty()) options.dtype = dtype_named(a.type);
  options.overwrite = a.overwrite;
  std::optional<core::Progress> progress;  // the total is known with the first tensor
  options.progress = [&](std::uint64_t done, std::uint64_t total, std::string_view tensor) {
    if (!progress) progress.emplace("exporting", static_cast<std::int64_t>(total), "bytes");
    progress->update(static_cast<std::int64_t>(done), tensor);
  };
  model::export_merged(model::open_checkpoint(find_model(a.model)), a.adapter, a.out, options);
  if (progress) progress->finish();
  fmt::print(stderr, "wrote {}\n", a.out);
}

}  // namespace

void add_export(CLI::App& app) {
  auto a = std::make_shared<ExportArguments>();
  CLI::App* command = app.add_subcommand("export", "Write a model and its adapter as one model");
  command->add_option("-m,--model", a->model,
                      "Path, org/name or a name that `rose models` lists: the adapter's model");
  command->add_option("--adapter", a->adapter, "Folder of a LoRA adapter, in PEFT's layout")
      ->required();
  command
      ->add_option("--out", a->out,
                   "A name ending in .gguf makes a GGUF file, anything else a folder")
      ->required();
  command->add_option("--type", a->type,
                      "Type of all matrices: f32, f16, bf16; for GGUF also q8_0 and so on");
  command->add_flag("--overwrite", a->overwrite, "Replace an existing file");
  command->callback([a] { write_merged(*a); });
}

}  // namespace rose::app
