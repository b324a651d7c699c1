// Tokenizer, data, weights.

#include "rose/trainer/prepare_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"
#include "rose/kernels/quant.h"
#include "rose/model/files/checkpoint.h"
#include "rose/text/bpe_trainer.h"
#include "rose/trainer/data.h"

#include "rose/trainer/chat_encoder.h"
#include "rose/trainer/fresh_shape.h"

namespace rose::trainer {

namespace fs = std::filesystem;
using core::Code;
using core::Error;

// Read documents in the order of their paths.
std::vector<std::string> read_documents(const std::vector<std::string>& paths) {
  std::vector<std::string> documents;
  const auto add = [&](const fs::path& file) {
    std::string text = core::read_file(file);
    if (file.extension() == ".md") text = prose_of(text);
    if (!text.empty()) documents.push_back(std::move(text));
  };
  for (const std::string& name : paths) {
    const fs::path path(name);
    if (fs::is_regular_file(path)) {
      add(path);
      continue;
    }
    std::vector<fs::path> files;
    if (fs::is_directory(path)) {
      for (const auto& entry : fs::recursive_directory_iterator(path)) {
        const fs::path end = entry.path().extension();
        if (entry.is_regular_file() && (end == ".md" || end == ".txt"))
          files.push_back(entry.path());
      }
    }
    if (files.empty())
      throw Error(Code::not_found, "there is no text to train on")
          .in(name)
          .hint("data.text takes files, and folders with .txt or .md files");
    std::ranges::sort(files);
    for (const fs::path& file : files) add(file);
  }
  return documents;
}

// Find, convert or learn the tokenizer.
namespace {

/// A folder or file as named, or a name in the hub's cache.
fs::path checkpoint_path(const std::string& name) {
  if (fs::exists(name)) return name;
  if (const auto found = model::find_in_hub_cache(name)) return *found;
  throw Error(Code::not_found, "there is no such model")
      .in(name)
      .hint("name a folder, a GGUF file, or ORGANISATION/NAME in the Hugging Face cache");
}

text::Vocab vocabulary_of(const std::string& name) {
  const fs::path path = checkpoint_path(name);
  if (path.filename() == "tokenizer.json") return text::vocab_from_hf(path);
  const model::Checkpoint checkpoint = model::describe_checkpoint(path);
  if (checkpoint.vocab) return text::vocab_from_gguf(*checkpoint.vocab);
  if (checkpoint.tokenizer_json) return text::vocab_from_hf(*checkpoint.tokenizer_json);
  throw Error(Code::not_found, "this model has no tokenizer").in(name);
}

/// Whether a run has got past its preparation; what an attempt that failed has left is made again.
bool has_begun(const fs::path& folder) {
  return fs::exists(folder / "config.yaml");
}

// Keep the chat template of the model, or the one that is named.
std::string chat_template_for(const TrainConfig& config) {
  if (!config.chat.form.empty()) return chat_template_source(config.chat.form);
  if (config.model.from.empty()) return "";
  return model::describe_checkpoint(checkpoint_path(config.model.from)).chat_template;
}

text::Vocab learn_vocabulary(const TrainConfig& config) {
  text::BpeTrainerOptions options;
  options.vocab_size = static_cast<std::size_t>(config.tokenizer.vocabulary);
  options.max_token_bytes = 16;
  options.special_tokens = {"<|endoftext|>"};
  options.special_tokens.insert(options.special_tokens.end(), config.tokenizer.special.begin(),
                                config.tokenizer.special.end());
  text::BpeTrainer trainer(options);
  for (const std::string& document : read_documents(config.data.text)) trainer.feed(document);
  text::Vocab vocabulary = trainer.train();
  vocabulary.bos = vocabulary.eos = 0;
  return vocabulary;
}

}  // namespace

std::optional<text::Tokenizer> prepare_tokenizer(const TrainConfig& config,
                                                 const fs::path& folder) {
  const fs::path kept = folder / "tokenizer.json";
  if (fs::exists(kept) && has_begun(folder))
    return text::Tokenizer(text::vocab_from_hf(folder), kept.string());
  const std::string& from =
      config.tokenizer.from.empty() ? config.model.from : config.tokenizer.from;
  if (from.empty() && config.tokenizer.vocabulary == 0) {
    if (config.data.text.empty()) return std::nullopt;
    throw Error(Code::invalid_argument, "text needs a tokenizer")
        .in("tokenizer")
        .hint("name one in tokenizer.from, or learn one: tokenizer.vocabulary: 1024");
  }
  const text::Vocab vocabulary = from.empty() ? learn_vocabulary(config) : vocabulary_of(from);
  core::write_file_atomic(kept, text::to_hf_json(vocabulary));
  core::json::object settings;
  if (vocabulary.eos) {
    const auto token = [&](std::int32_t id) {
      return vocabulary.tokens.at(static_cast<std::size_t>(id));
    };
    settings["bos_token"] = token(vocabulary.bos.value_or(*vocabulary.eos));
    settings["eos_token"] = token(*vocabulary.eos);
  }
  if (const std::string source = chat_template_for(config); !source.empty())
    settings["chat_template"] = source;
  if (!settings.empty())
    core::write_file_atomic(folder / "tokenizer_config.json", core::pretty_json(settings));
  return text::Tokenizer(vocabulary, kept.string());
}

// Shards as named, or made from text.
namespace {

DataSource source_of(const std::string& entry) {
  DataSource source;
  std::string path = entry;
  const std::size_t at = entry.rfind('@');
  if (at != std::string::npos && !fs::exists(entry)) {
    const char* end = entry.data() + entry.size();
    if (std::from_chars(entry.data() + at + 1, end, source.weight).ptr != end ||
        !(source.weight > 0))
      throw Error(Code::invalid_argument, "a weight behind @ must be a number above 0").in(entry);
    path = entry.substr(0, at);
  }
  source.name = path;
  source.files = shard_files(path);
  return source;
}

struct TextShards {
  fs::path train, validation;
};

void write_shards(const TrainConfig& config, const text::Tokenizer& tokenizer,
                  const TextShards& to) {
  std::vector<std::pair<std::vector<std::int32_t>, std::string>> documents;
  std::int64_t total = 0;
  for (std::string& text : read_documents(config.data.text)) {
    documents.emplace_back(tokenizer.encode(text, false), std::move(text));
    total += static_cast<std::int64_t>(documents.back().first.size());
  }
  const ShardInfo info{.vocab_size = tokenizer.vocab_size(),
                       .separator = tokenizer.eos().value_or(0),
                       .tokenizer = tokenizer.hash()};
  ShardWriter train(to.train, info), validation(to.validation, info);
  auto left = total - static_cast<std::int64_t>(static_cast<double>(total) * config.data.held_out);
  for (const auto& [ids, text] : documents) {
    const auto first = static_cast<std::size_t>(
        std::clamp<std::int64_t>(left, 0, static_cast<std::int64_t>(ids.size())));
    left -= static_cast<std::int64_t>(ids.size());
    const std::span<const std::int32_t> all(ids);
    for (const bool held : {false, true}) {
      const auto part = held ? all.subspan(first) : all.first(first);
      if (part.empty()) continue;
      std::int64_t bytes = 0;
      for (const std::int32_t id : part)
        bytes += static_cast<std::int64_t>(tokenizer.bytes(id).size());
      (held ? validation : train).append(part, core::xxh3(std::as_bytes(part)), bytes);
    }
  }
  train.finish();
  if (validation.tokens() > 1) validation.finish();
}

}  // namespace

PreparedData prepare_data(const TrainConfig& config, const fs::path& folder,
                          const std::optional<text::Tokenizer>& tokenizer) {
  PreparedData data;
  if (tokenizer) data.separator = tokenizer->eos();
  for (const std::string& entry : config.data.train) data.train.push_back(source_of(entry));
  for (const std::string& entry : config.data.validation) {
    data.validation.push_back({entry, shard_files(entry, "val"), 1.0});
  }
  if (!config.data.text.empty()) {
    if (!tokenizer) throw Error(Code::invalid_argument, "text needs a tokenizer").in("tokenizer");
    const TextShards to{folder / "data" / "train.bin", folder / "data" / "val.bin"};
    fs::create_directories(folder / "data");
    if (!fs::exists(to.train) || !has_begun(folder)) write_shards(config, *tokenizer, to);
    data.train.push_back({"text", {to.train}, 1.0});
    if (data.validation.empty() && fs::exists(to.validation))
      data.validation.push_back({"text", {to.validation}, 1.0});
  }
  std::int64_t tokens = 0, bytes = 0;
  for (const DataSource& source : data.validation) {
    for (const fs::path& file : source.files) {
      const ShardInfo info =
          Shard::open(file, {.vocab_size = 0, .separator = data.separator}).info();
      tokens += info.tokens, bytes += info.text_bytes;
    }
  }
  if (tokens > 0) data.bytes_per_token = static_cast<double>(bytes) / static_cast<double>(tokens);
  return data;
}

// Weights to train, and how much memory they will take.
namespace {

void add_stops(model::Config& shape, std::span<const std::int32_t> stops) {
  for (const std::int32_t id : stops) {
    if (std::ranges::count(shape.eos_ids, id) == 0) shape.eos_ids.insert(shape.eos_ids.begin(), id);
  }
}

}  // namespace

std::shared_ptr<model::WeightSet> prepare_weights(const TrainConfig& config,
                                                  const std::optional<text::Tokenizer>& tokenizer,
                                                  std::span<const std::int32_t> stops) {
  if (config.model.from.empty()) {
    model::Config shape = fresh_shape(config.model.shape);
    constexpr std::int64_t multiple = 64;
    if (shape.vocab_size == 0 && tokenizer)
      shape.vocab_size = (tokenizer->vocab_size() + multiple - 1) / multiple * multiple;
    if (tokenizer && tokenizer->eos()) shape.eos_ids = {*tokenizer->eos()};
    add_stops(shape, stops);
    if (tokenizer && tokenizer->vocab_size() > shape.vocab_size)
      throw Error(Code::invalid_argument,
                  fmt::format("the tokenizer has {} entries and the model {}",
                              tokenizer->vocab_size(), shape.vocab_size))
          .in("model.vocab_size");
    model::validate(shape);
    return model::random_weights(shape, config.seed);
  }
  model::Checkpoint checkpoint = model::open_checkpoint(checkpoint_path(config.model.from));
  add_stops(checkpoint.config, stops);
  if (config.batch.context > checkpoint.config.max_positions)
    throw Error(Code::invalid_argument,
                fmt::format("rows of {} tokens, and the model has {} positions",
                            config.batch.context, checkpoint.config.max_positions))
        .in("batch.context");
  const auto stored = model::load_weights(checkpoint);
  if (!stored->plain())
    throw Error(
        Code::unsupported,
        fmt::format("training starts from plain weights, and these are {}", stored->quantization()))
        .in("model");
  auto weights = model::random_weights(checkpoint.config, config.seed);
  for (const model::Parameter& to : weights->parameters()) {
    const model::Parameter& from = stored->parameter(to.name);
    const kernels::MatrixView view = from.view();
    const std::size_t bytes = kernels::row_bytes(view.dtype, view.cols);
    for (std::int64_t r = 0; r < view.rows; ++r)
      kernels::dequantize_row(
          view.dtype,
          static_cast<const std::byte*>(view.data) + static_cast<std::size_t>(r) * bytes,
          to.f32().data() + r * view.cols, view.cols);
  }
  return weights;
}

double cpu_training_bytes(const model::Config& c, std::int64_t parameters, std::int64_t tokens,
                          bool accumulates) {
  const auto d = [](std::int64_t x) { return static_cast<double>(x); };
  const double q = d(c.heads * c.head_dim), k = d(c.kv_heads * c.head_dim),
               raw = c.qk_norm ? q + k : 0.0;
  const double saved =
      4 * d(c.hidden) + 2 * q + 2 * k + raw + 3 * d(c.ffn);               // of a token in a block
  const double passing = 6 * d(c.hidden) + 4 * q + 4 * k + 4 * d(c.ffn);  // of a token on the way
  constexpr double head_rows = 512;
  const double floats = d(parameters) * (accumulates ? 5 : 4) +
                        d(tokens) * (d(c.layers) * saved + passing) + head_rows * d(c.vocab_size);
  return 4 * floats;
}

}  // namespace rose::trainer
