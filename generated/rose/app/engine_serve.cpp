// The engine process of a server.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>

#include "rose/app/engine_batch.h"
#include "rose/app/engine_commands.h"
#include "rose/core/files.h"
#include "rose/infer/engine.h"
#include "rose/model/adapter.h"
#include "rose/model/weights.h"
#include "rose/serve/engine_server.h"
#include "rose/serve/parrot.h"
#include "rose/serve/prefill_server.h"
#include "rose/serve/split_backend.h"

namespace rose::app {
namespace {

struct ServeEngineArguments {
  EngineOptions engine;
  BatchOptions batch;
  int socket = -1;
  bool parrot = false;
  std::int64_t step_us = 0;
  std::size_t max_waiting = 256;
  std::size_t prefill_engines = 0;
  std::int32_t prefill_pages = 8;
  bool prefill = false;  ///< this is one of them
};

// A parrot with the tokens of a model.
std::unique_ptr<infer::Runner> parrot(const ServeEngineArguments& a, const model::Config& config,
                                      const text::Tokenizer& tokenizer) {
  model::Config small = config;  // what the engine asks of weights is in their configuration
  small.layers = 1, small.heads = small.kv_heads = 1, small.head_dim = small.hidden = small.ffn = 2;
  serve::ParrotOptions options;
  if (a.batch.max_num_seqs > 0) options.sequences = a.batch.max_num_seqs;
  if (a.batch.max_num_batched_tokens > 0) options.tokens = a.batch.max_num_batched_tokens;
  if (a.engine.max_model_len > 0) options.positions = a.engine.max_model_len;
  options.step = std::chrono::microseconds(a.step_us);
  return serve::make_parrot(tokenizer, model::random_weights(small, 1), options);
}

// Load, say so, serve until the front has gone.
void serve_engine(const ServeEngineArguments& a) {
  const auto path = find_model(a.engine.model);
  const model::Checkpoint checkpoint =
      a.parrot ? model::describe_checkpoint(path) : model::open_checkpoint(path);
  const text::Tokenizer tokenizer = load_tokenizer(checkpoint);
  infer::EngineOptions options;
  options.policy = infer::parse_admission_policy(a.batch.policy);
  options.max_waiting = a.max_waiting;
  if (!a.parrot) add_drafter(a.engine, a.batch, checkpoint.config, options);
  infer::Engine engine(
      a.parrot
          ? parrot(a, checkpoint.config, tokenizer)
          : make_runner(a.engine, a.batch, load_weights(a.engine, a.batch, checkpoint), tokenizer),
      options, tokenizer);
  const infer::MemoryPlan memory = engine.control().memory();
  serve::EngineFacts facts;
  facts.runner = engine.control().runner();
  facts.vocab = checkpoint.config.vocab_size;
  facts.positions = a.engine.max_model_len > 0
                        ? std::min(a.engine.max_model_len, checkpoint.config.max_positions)
                        : checkpoint.config.max_positions;
  facts.pages = memory.pages - 1;
  facts.page_size = memory.page_size;
  facts.sequences = a.batch.max_num_seqs;
  const auto read_adapter = [&](const std::string& name, const std::string& folder) {
    engine.control().load_adapter(
        name, std::make_shared<model::Adapter>(model::read_adapter(folder, checkpoint.config)));
  };
  if (a.prefill) {
    engine.start();
    serve::serve_prefill(a.socket, engine);
  } else if (a.prefill_engines > 0) {
    std::vector<std::string> command;
    const std::string words = core::read_file("/proc/self/cmdline");
    for (std::size_t at = 0; at < words.size(); at = words.find('\0', at) + 1) {
      command.emplace_back(words.c_str() + at);
      if (command.size() > 1 && command[command.size() - 2] == "--socket")
        command.back() = "{socket}";
      if (command.size() > 1 && command[command.size() - 2] == "--prefill-engines")
        command.back() = "0";
    }
    command.front() = std::filesystem::read_symlink("/proc/self/exe").string();
    command.emplace_back("--prefill");
    serve::SplitOptions split{.engines = {}, .least_pages = a.prefill_pages};
    split.engines.assign(a.prefill_engines, serve::prefill_process(command));
    serve::SplitBackend backend(engine, tokenizer, std::move(facts), std::move(split));
    serve::serve_engine(a.socket, backend);
  } else {
    serve::LocalBackend backend(engine, tokenizer, std::move(facts));
    if (!a.parrot) backend.read_adapter = read_adapter;
    serve::serve_engine(a.socket, backend);
  }
  std::_Exit(0);
}

}  // namespace

void add_serve_engine(CLI::App& app) {
  auto arguments = std::make_shared<ServeEngineArguments>();
  CLI::App* command =
      app.add_subcommand("serve-engine", "The engine process of `rose serve`, which starts it");
  command->add_option("--socket", arguments->socket, "Descriptor of the socket to the front")
      ->required();
  command->add_option("-m,--model", arguments->engine.model,
                      "Path, org/name or a name that `rose models` lists");
  command->add_option("--max-model-len", arguments->engine.max_model_len,
                      "Context, in tokens; 0 is what the model allows");
  command->add_option("--max-waiting", arguments->max_waiting,
                      "Requests that may wait; more are refused");
  command->add_flag("--parrot", arguments->parrot,
                    "Repeat what the user says: no weights are loaded");
  command->add_option("--parrot-step-us", arguments->step_us,
                      "A step of the parrot takes so many microseconds");
  command->add_option("--prefill-engines", arguments->prefill_engines,
                      "Processes that read long prompts for this one");
  command->add_option("--prefill-pages", arguments->prefill_pages,
                      "Prompts with fewer pages to compute are read here");
  command->add_flag("--prefill", arguments->prefill, "Read prompts for another engine");
  add_batch_options(*command, arguments->batch);
  command->callback([arguments] { serve_engine(*arguments); });
}

}  // namespace rose::app
