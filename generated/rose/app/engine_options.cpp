// Load a model and stream its words.

#include "rose/app/engine_options.h"

#include <csignal>

#include "rose/core/error.h"
#include "rose/text/detokenizer.h"

#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/model/adapter.h"

namespace rose::app {

namespace {

// The only thing that a signal handler may touch.
volatile std::sig_atomic_t interrupted = 0;

}  // namespace

// Declare the options once.
void add_engine_options(CLI::App& command, EngineOptions& options) {
  model::Sampling& sampling = options.generate.sampling;
  command.add_option("-m,--model", options.model,
                     "Path, org/name or a name that `rose models` lists");
  command.add_option("-n,--max-tokens", options.generate.max_tokens, "Longest answer, in tokens")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      .add_option("--max-model-len", options.max_model_len,
                  "Context, in tokens; 0 is what the model allows")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command
      .add_option("-t,--temperature", sampling.temperature, "0 always takes the most likely token")
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "Keep the k most likely tokens; 0 keeps all")
      ->capture_default_str();
  command.add_option("--top-p", sampling.top_p, "Keep the most likely tokens whose mass reaches p")
      ->capture_default_str();
  command
      .add_option("--min-p", sampling.min_p,
                  "Keep tokens at least this fraction as likely as the first")
      ->capture_default_str();
  command.add_option("--seed", sampling.seed, "Same seed, same answer")->capture_default_str();
  command.add_flag("--ignore-eos", options.generate.ignore_stop, "Go on to --max-tokens");
  command.add_flag("--stats", options.statistics, "Print times and rates to standard error");
  add_quantization_options(command, options.quantization);
  command.add_option("--adapter", options.adapter, "Folder of a LoRA adapter, in PEFT's layout");
}

LoadedModel::LoadedModel(const EngineOptions& options)
    : checkpoint_(model::open_checkpoint(find_model(options.model))),
      tokenizer_(load_tokenizer(checkpoint_)) {
  const auto weights = load_weights(options.quantization, checkpoint_);
  generator_.emplace(weights, options.max_model_len);
  if (!options.adapter.empty()) adapt(options.adapter, *weights);
}

// Print each piece as soon as its characters are whole.
model::Generation LoadedModel::stream(std::span<const std::int32_t> ids,
                                      const EngineOptions& options) {
  text_.clear();
  text::Detokenizer detokenizer(tokenizer_);
  const auto emit = [&](std::string_view piece) {
    if (piece.empty()) return;
    print(piece);
    text_ += piece;
  };
  model::GenerateOptions how = options.generate;
  if (how.stop_ids.empty()) how.stop_ids = stops_;
  model::Generation result = generator_->generate(ids, how, [&](std::int32_t id) {
    emit(detokenizer.push(id));
    return interrupted == 0;
  });
  emit(detokenizer.finish());
  if (options.statistics) {
    const auto generated = static_cast<double>(result.ids.size());
    fmt::print(
        stderr,
        "\n[{} prompt tokens, {} reused; first token after {:.2f} s; {} tokens, {:.1f} tokens/s]\n",
        result.prompt_tokens, result.reused_tokens, result.prefill_seconds, result.ids.size(),
        result.decode_seconds > 0.0 ? (generated - 1.0) / result.decode_seconds : 0.0);
  }
  return result;
}

// Take an adapter, and the form of its conversations.
void LoadedModel::adapt(const std::filesystem::path& folder, const model::WeightSet& weights) {
  generator_->adapt(
      std::make_shared<model::Adapter>(model::read_adapter(folder, weights.config())));
  const auto settings = [&](const char* name, auto&& use) {
    const std::filesystem::path file = folder / name;
    if (!std::filesystem::exists(file)) return;
    const core::json::value value = core::parse_json(core::read_file(file), file.string());
    use(core::as_object(value, file.string()), file.string());
  };
  settings("tokenizer_config.json",
           [&](const core::json::object& object, const std::string& where) {
             const std::string form(core::get_string_or(object, "chat_template", "", where));
             if (form.empty()) return;
             checkpoint_.chat_template = form;
             checkpoint_.bos_token = core::get_string_or(object, "bos_token", "", where);
             checkpoint_.eos_token = core::get_string_or(object, "eos_token", "", where);
           });
  settings("generation_config.json",
           [&](const core::json::object& object, const std::string& where) {
             stops_ = model::hf_token_ids(object, "eos_token_id", where);
           });
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);  // without SA_RESTART: a blocking read returns
}

bool take_interrupt() {
  return std::exchange(interrupted, 0) != 0;
}

}  // namespace rose::app
