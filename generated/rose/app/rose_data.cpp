// Prepare data from the command line.

#include <algorithm>
#include <memory>
#include <optional>

#include "rose/app/models.h"
#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/core/progress.h"
#include "rose/text/bpe_trainer.h"
#include "rose/trainer/data/prepare.h"
#include "rose/trainer/data/shard.h"

namespace rose::app {

namespace {

namespace fs = std::filesystem;

// Tokenize, and say what was dropped.
struct TokenizeArguments {
  trainer::PrepareOptions options;
  std::vector<std::string> inputs, exams;
  std::string out, model, separator, duplicates = "exact";
  bool quality = false;
};

text::Tokenizer tokenizer_named(const std::string& name) {
  if (!name.empty() && (fs::path(name).filename() == "tokenizer.json" ||
                        fs::exists(fs::path(name) / "tokenizer.json")))
    return text::Tokenizer::load(name);
  return load_tokenizer(model::describe_checkpoint(find_model(name)));
}

void tokenize_corpus(TokenizeArguments& arguments) {
  trainer::PrepareOptions& options = arguments.options;
  const text::Tokenizer tokenizer = tokenizer_named(arguments.model);
  options.tokenizer = &tokenizer;
  options.inputs.assign(arguments.inputs.begin(), arguments.inputs.end());
  options.exams.assign(arguments.exams.begin(), arguments.exams.end());
  options.out = arguments.out;
  if (arguments.quality) options.quality.emplace();
  options.duplicates = arguments.duplicates == "near"    ? trainer::Duplicates::near
                       : arguments.duplicates == "exact" ? trainer::Duplicates::exact
                                                         : trainer::Duplicates::keep;
  if (!arguments.separator.empty()) {
    options.separator = tokenizer.find(arguments.separator);
    if (!options.separator) {
      throw core::Error(core::Code::invalid_argument, "the tokenizer has no such token")
          .in("--separator " + arguments.separator);
    }
  }
  const trainer::PrepareResult result = trainer::prepare(options);
  fmt::print(stderr,
             "{} of {} documents kept, {} of them held out: {} tokens of {} bytes in {} {}\n",
             result.kept, result.documents, result.held_out, result.tokens, result.text_bytes,
             result.shards, result.shards == 1 ? "shard" : "shards");
  for (const auto& [why, count] : result.dropped) fmt::print(stderr, "{:>10} {}\n", count, why);
}

// Learn a vocabulary.
struct VocabularyArguments {
  std::vector<std::string> inputs;
  std::string out;
  std::size_t size = 8192;
  trainer::TextSourceOptions source;
};

constexpr const char* chat_template =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

void learn_vocabulary(const VocabularyArguments& arguments) {
  text::BpeTrainerOptions options;
  options.vocab_size = arguments.size;
  options.special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  text::BpeTrainer trainer(options);
  trainer::TextSource source({arguments.inputs.begin(), arguments.inputs.end()}, arguments.source);
  {
    core::Progress progress("reading", source.total_bytes(), "bytes");
    for (trainer::RawDocument raw; source.next(raw);) {
      trainer.feed(raw.text(arguments.source));
      progress.update(source.done_bytes());
    }
  }
  const text::Vocab vocab = trainer.train();
  fs::create_directories(arguments.out);
  const fs::path folder = arguments.out;
  core::write_file_atomic(folder / "tokenizer.json", text::to_hf_json(vocab));
  const core::json::object config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                  {"eos_token", "<|endoftext|>"},
                                  {"pad_token", "<|endoftext|>"},
                                  {"clean_up_tokenization_spaces", false},
                                  {"chat_template", chat_template}};
  core::write_file_atomic(folder / "tokenizer_config.json", core::pretty_json(config) + "\n");
  fmt::print(stderr, "{} tokens in {}\n", vocab.tokens.size(), arguments.out);
}

// Say what shards hold.
void show_shards(const std::string& path, bool verify) {
  for (const char* name : {"train", "val"}) {
    std::int64_t tokens = 0, documents = 0, bytes = 0;
    const bool folder = fs::is_directory(path);
    if (!folder && name != std::string_view("train")) continue;
    std::vector<fs::path> files;
    try {
      files = trainer::shard_files(path, name);
    } catch (const core::Error&) {
      if (name == std::string_view("train")) throw;
      continue;  // nothing was held out
    }
    for (const fs::path& file : files) {
      const trainer::Shard shard = trainer::Shard::open(file);
      if (verify) shard.verify();
      tokens += shard.info().tokens;
      documents += shard.documents();
      bytes += shard.info().text_bytes;
    }
    std::string line = fmt::format("{}: {} {}, {} documents, {} tokens",
                                   folder ? name : fs::path(path).filename().string(), files.size(),
                                   files.size() == 1 ? "shard" : "shards", documents, tokens);
    if (bytes > 0 && tokens > documents)
      line += fmt::format(", {} bytes of text, {:.2f} a token", bytes,
                          static_cast<double>(bytes) / static_cast<double>(tokens - documents));
    print(line + (verify ? ", checksums fit\n" : "\n"));
  }
}

}  // namespace

// Declare the commands.
void add_data(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Make training data from text");
  data->require_subcommand(1);
  {
    auto a = std::make_shared<TokenizeArguments>();
    CLI::App* c = data->add_subcommand(
        "tokenize", "Turn text into shards of tokens; may be killed and run again");
    c->add_option("inputs", a->inputs, "Files, or folders of .txt, .md and .jsonl files")
        ->required();
    c->add_option("-o,--out", a->out, "Folder for the shards")->required();
    c->add_option("-m,--model", a->model, "Model, or folder with tokenizer.json");
    c->add_option("--separator", a->separator, "Token between documents (default: <|endoftext|>)");
    c->add_option("--held-out", a->options.held_out, "Share of documents for validation")
        ->capture_default_str();
    c->add_option("--shard-tokens", a->options.shard_tokens, "Tokens of a shard")
        ->capture_default_str();
    c->add_option("--batch-bytes", a->options.batch_bytes, "Text that is worked on at a time")
        ->capture_default_str();
    c->add_option("--dedup", a->duplicates, "Copies to drop: exact, near (and exact), none")
        ->check(CLI::IsMember({"exact", "near", "none"}))
        ->capture_default_str();
    c->add_flag("--quality", a->quality, "Drop what does not look like prose");
    c->add_option("--decontaminate", a->exams, "Evaluation sets whose phrases may not occur");
    c->add_option("--text-field", a->options.source.text_field, "Member of a JSON line")
        ->capture_default_str();
    c->add_option("--delimiter", a->options.source.delimiter, "Line between documents of a file");
    c->callback([a] { tokenize_corpus(*a); });
  }
  // Declare the other two.
  {
    auto a = std::make_shared<VocabularyArguments>();
    CLI::App* c = data->add_subcommand("vocabulary", "Learn a tokenizer from text");
    c->add_option("inputs", a->inputs, "Files, or folders of .txt, .md and .jsonl files")
        ->required();
    c->add_option("-o,--out", a->out, "Folder for tokenizer.json")->required();
    c->add_option("-n,--size", a->size, "Number of tokens")->capture_default_str();
    c->add_option("--text-field", a->source.text_field, "Member of a JSON line")
        ->capture_default_str();
    c->add_option("--delimiter", a->source.delimiter, "Line between documents of a file");
    c->callback([a] { learn_vocabulary(*a); });
  }
  {
    auto path = std::make_shared<std::string>();
    auto verify = std::make_shared<bool>(false);
    CLI::App* c = data->add_subcommand("show", "Say what shards hold");
    c->add_option("path", *path, "A shard, or a folder of shards")->required();
    c->add_flag("--verify", *verify, "Read everything and compare checksums");
    c->callback([path, verify] { show_shards(*path, *verify); });
  }
}

}  // namespace rose::app
