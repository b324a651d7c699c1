// Measure a model.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rose/app/engine_commands.h"
#include "rose/app/models.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/json.h"
#include "rose/kernels/gpu/stream.h"
#include "rose/model/weights.h"
#include "rose/trainer/evaluate/choices.h"
#include "rose/trainer/evaluate/endings.h"
#include "rose/trainer/evaluate/intervals.h"
#include "rose/trainer/evaluate/text_score.h"
#include "rose/trainer/make_compute.h"
#include "rose/trainer/prepare_run.h"

namespace rose::app {

namespace {

using core::Code;
using core::Error;
namespace json = core::json;

// What is asked for.
struct EvalOptions {
  std::string model, against, task, device = "auto", precision = "fp32";
  std::vector<std::string> data;
  std::int64_t context = 0, stride = 0, limit = 0;
  bool blind = false, show = false, as_json = false, items = false;
};

constexpr std::int64_t pass_tokens = 4096;  // of a forward pass

// Load a model to be measured.
struct Measured {
  std::string name;
  text::Tokenizer tokenizer;
  model::Config config;
  trainer::LogProbs log_probs;
};

Measured load_measured(const std::string& name, const EvalOptions& options) {
  const model::Checkpoint checkpoint = model::open_checkpoint(find_model(name));
  Measured measured{checkpoint.path.string(), load_tokenizer(checkpoint), checkpoint.config, {}};
  const bool cpu =
      options.device == "cpu" || (options.device == "auto" && !kernels::gpu::available());
  if (cpu) {
    if (options.precision != "fp32")
      throw Error(Code::unsupported, "on a CPU sums are taken in fp32").in("--precision");
    measured.log_probs = trainer::cpu_log_probs(model::load_weights(checkpoint));
    return measured;
  }
  trainer::TrainConfig config;
  config.model.from = checkpoint.path.string();
  config.batch.context = 1;
  const std::shared_ptr<trainer::Compute> compute = trainer::make_compute(
      trainer::prepare_weights(config, std::nullopt), {},
      {options.device, options.precision, "auto", pass_tokens + checkpoint.config.max_positions});
  measured.log_probs = [compute](const trainer::MicroBatch& batch, std::span<float> out) {
    compute->logprobs(batch, out);
  };
  return measured;
}

// Read documents as tokens.
std::vector<std::vector<std::int32_t>> read_tokens(const EvalOptions& options,
                                                   const text::Tokenizer& tokenizer) {
  std::vector<std::vector<std::int32_t>> documents;
  std::vector<std::string> texts;
  for (const std::string& path : options.data) {
    if (!path.ends_with(".bin")) {
      texts.push_back(path);
      continue;
    }
    const trainer::Shard shard = trainer::Shard::open(
        path, {.vocab_size = tokenizer.vocab_size(), .separator = tokenizer.eos()});
    if (shard.info().tokenizer != 0 && shard.info().tokenizer != tokenizer.hash())
      throw Error(Code::invalid_argument, "this shard was made with another tokenizer").in(path);
    for (std::int64_t d = 0; d < shard.documents(); ++d) {
      const trainer::DocumentRange range = shard.document(d);
      auto& ids = documents.emplace_back(static_cast<std::size_t>(range.size()));
      shard.copy(range.begin, ids);
    }
  }
  if (!texts.empty())
    for (const std::string& text : trainer::read_documents(texts))
      documents.push_back(tokenizer.encode(text, false));
  if (options.limit > 0 && static_cast<std::int64_t>(documents.size()) > options.limit)
    documents.resize(static_cast<std::size_t>(options.limit));
  return documents;
}

// Fewer documents say nothing of how they vary.
constexpr std::size_t enough_documents = 5;

json::array to_json(const trainer::Interval& interval) {
  return {interval.low, interval.high};
}

double bits_of(std::span<const trainer::Score> documents, std::span<const std::size_t> drawn) {
  trainer::TextScore score;
  for (const std::size_t d : drawn) score.total += documents[d];
  return score.bits_per_byte();
}

json::object measure_text(const Measured& measured, const EvalOptions& options,
                          trainer::TextScore& score) {
  const std::int64_t longest = measured.config.max_positions;
  constexpr std::int64_t usual = 1024;
  const std::int64_t context = options.context > 0 ? options.context : std::min(usual, longest);
  if (context > longest)
    throw Error(Code::invalid_argument, fmt::format("the model has {} positions", longest))
        .in("--context");
  const auto documents = read_tokens(options, measured.tokenizer);
  score =
      trainer::score_documents(measured.log_probs, measured.tokenizer, documents,
                               {.context = context, .stride = options.stride, .most = pass_tokens});
  json::object out{{"documents", documents.size()},
                   {"tokens", score.total.tokens},
                   {"bytes", score.total.bytes},
                   {"context", context},
                   {"stride", options.stride > 0 ? options.stride : context},
                   {"loss", score.loss()},
                   {"perplexity", score.perplexity()},
                   {"bits_per_byte", score.bits_per_byte()}};
  if (documents.size() >= enough_documents)
    out["bits_per_byte_95"] = to_json(trainer::bootstrap_interval(
        score.documents.size(), [&](auto drawn) { return bits_of(score.documents, drawn); }));
  return out;
}

// Choices, under each division.
constexpr std::array<std::pair<const char*, trainer::Division>, 3> divisions = {
    {{"undivided", trainer::Division::none},
     {"per_token", trainer::Division::tokens},
     {"per_byte", trainer::Division::bytes}}};

std::vector<trainer::ChoiceItem> read_task(const EvalOptions& options) {
  std::vector<trainer::ChoiceItem> items =
      options.task == "endings"
          ? trainer::parse_choices(trainer::endings_lines(), "endings")
          : trainer::parse_choices(core::read_file(options.task), options.task);
  if (options.limit > 0 && static_cast<std::int64_t>(items.size()) > options.limit)
    items.resize(static_cast<std::size_t>(options.limit));
  if (items.empty()) throw Error(Code::invalid_argument, "there is no item").in(options.task);
  return items;
}

json::object measure_task(const Measured& measured, const EvalOptions& options,
                          std::vector<trainer::ChoiceScore>& scores) {
  const auto items = read_task(options);
  scores = trainer::score_choices(
      measured.log_probs, measured.tokenizer, items,
      {.context = measured.config.max_positions, .most = pass_tokens, .blind = options.blind});
  json::object out{{"task", options.task}, {"blind", options.blind}, {"items", items.size()}};
  out["straddled"] = std::ranges::count_if(scores, [](const auto& s) { return s.straddled; });
  for (const auto& [name, division] : divisions) {
    const std::size_t right = trainer::count_right(scores, division);
    out[name] =
        json::object{{"right", right},
                     {"accuracy", static_cast<double>(right) / static_cast<double>(items.size())},
                     {"accuracy_95", to_json(trainer::wilson_interval(right, items.size()))}};
  }
  if (!options.items) return out;
  json::array each;
  for (const trainer::ChoiceScore& score : scores) {
    json::array sums;
    for (const trainer::Score& ending : score.endings) sums.push_back(ending.log_prob);
    each.push_back({{"log_probs", sums}, {"choice", score.choice(trainer::Division::bytes)}});
  }
  out["each"] = std::move(each);
  return out;
}

// Measure, compare, print.
json::object measure(const std::string& name, const EvalOptions& options, trainer::TextScore& text,
                     std::vector<trainer::ChoiceScore>& choices) {
  const Measured measured = load_measured(name, options);
  json::object out{{"model", measured.name}};
  if (!options.data.empty()) out["text"] = measure_text(measured, options, text);
  if (!options.task.empty()) out["choices"] = measure_task(measured, options, choices);
  return out;
}

/// First minus second, on the same documents and items.
json::object compare(const trainer::TextScore& a, const trainer::TextScore& b,
                     std::span<const trainer::ChoiceScore> c,
                     std::span<const trainer::ChoiceScore> d) {
  json::object out;
  if (!a.documents.empty()) {
    out["bits_per_byte"] = a.bits_per_byte() - b.bits_per_byte();
    if (a.documents.size() >= enough_documents)
      out["bits_per_byte_95"] =
          to_json(trainer::bootstrap_interval(a.documents.size(), [&](auto drawn) {
            return bits_of(a.documents, drawn) - bits_of(b.documents, drawn);
          }));
  }
  if (!c.empty()) {
    const auto difference = [&](std::size_t i) {
      constexpr auto by = trainer::Division::bytes;
      return static_cast<double>(c[i].right(by)) - static_cast<double>(d[i].right(by));
    };
    const auto mean = [&](std::span<const std::size_t> drawn) {
      double sum = 0;
      for (const std::size_t i : drawn) sum += difference(i);
      return sum / static_cast<double>(drawn.size());
    };
    double sum = 0;
    for (std::size_t i = 0; i < c.size(); ++i) sum += difference(i);
    out["accuracy"] = sum / static_cast<double>(c.size());
    out["accuracy_95"] = to_json(trainer::bootstrap_interval(c.size(), mean));
  }
  return out;
}

void print_text(const json::object& text) {
  print(fmt::format(
      "  {} tokens, {} bytes in {} documents; windows of {}, stride {}\n",
      text.at("tokens").to_number<std::int64_t>(), text.at("bytes").to_number<std::int64_t>(),
      text.at("documents").to_number<std::int64_t>(), text.at("context").to_number<std::int64_t>(),
      text.at("stride").to_number<std::int64_t>()));
  std::string interval;
  if (const auto* range = text.if_contains("bits_per_byte_95"))
    interval = fmt::format(" (95 %: {:.4f} to {:.4f}, over documents)",
                           range->as_array()[0].as_double(), range->as_array()[1].as_double());
  print(fmt::format("  loss {:.4f}   perplexity {:.2f}   bits per byte {:.4f}{}\n",
                    text.at("loss").as_double(), text.at("perplexity").as_double(),
                    text.at("bits_per_byte").as_double(), interval));
}

void print_choices(const json::object& choices) {
  print(fmt::format("  {}{}: {} items\n", choices.at("task").as_string().c_str(),
                    choices.at("blind").as_bool() ? ", blind" : "",
                    choices.at("items").to_number<std::int64_t>()));
  for (const auto& [name, unused] : divisions) {
    const json::object& result = choices.at(name).as_object();
    const json::array& range = result.at("accuracy_95").as_array();
    print(fmt::format("    {:<10} {:>4} right, {:5.1f} % (95 %: {:.1f} to {:.1f})\n", name,
                      result.at("right").to_number<std::int64_t>(),
                      100 * result.at("accuracy").as_double(), 100 * range[0].as_double(),
                      100 * range[1].as_double()));
  }
  if (const auto straddled = choices.at("straddled").to_number<std::int64_t>(); straddled > 0)
    print(fmt::format("    in {} items context and ending share a token when written together\n",
                      straddled));
}

void print_difference(const json::object& difference) {
  print("difference, first minus second\n");
  for (const char* name : {"bits_per_byte", "accuracy"}) {
    const auto* value = difference.if_contains(name);
    if (value == nullptr) continue;
    std::string interval;
    if (const auto* range = difference.if_contains(fmt::format("{}_95", name)))
      interval = fmt::format(" (95 %: {:+.4f} to {:+.4f}, paired)",
                             range->as_array()[0].as_double(), range->as_array()[1].as_double());
    print(fmt::format("  {} {:+.4f}{}\n", name, value->as_double(), interval));
  }
}

void evaluate(const EvalOptions& options) {
  if (options.show) return print(trainer::endings_lines().substr(1));
  if (options.data.empty() && options.task.empty())
    throw Error(Code::invalid_argument, "nothing says what to measure on")
        .in("eval")
        .hint("rose eval --data FILE, rose eval --task endings, or both");
  json::array models;
  std::array<trainer::TextScore, 2> texts;
  std::array<std::vector<trainer::ChoiceScore>, 2> choices;
  models.push_back(measure(options.model, options, texts[0], choices[0]));
  if (!options.against.empty())
    models.push_back(measure(options.against, options, texts[1], choices[1]));
  json::object out{{"models", models}};
  if (models.size() > 1) out["difference"] = compare(texts[0], texts[1], choices[0], choices[1]);
  if (options.as_json) return print(core::pretty_json(out) + "\n");
  for (const json::value& model : models) {
    print(fmt::format("{}\n", model.at("model").as_string().c_str()));
    if (const auto* text = model.as_object().if_contains("text")) print_text(text->as_object());
    if (const auto* task = model.as_object().if_contains("choices"))
      print_choices(task->as_object());
  }
  if (models.size() > 1) print_difference(out.at("difference").as_object());
}

}  // namespace

// The options of rose eval.
void add_eval(CLI::App& app) {
  auto o = std::make_shared<EvalOptions>();
  CLI::App* c = app.add_subcommand("eval", "Measure a model on texts and tasks");
  c->add_option("-m,--model", o->model, "Path, org/name or a name that `rose models` lists");
  c->add_option("--against", o->against, "A second model, measured on the same and compared");
  c->add_option("--data", o->data, "Text files, folders of .txt and .md, token shards (.bin)");
  c->add_option("--task", o->task, "endings, or a file of items: context, endings, label");
  c->add_option("--context", o->context, "Tokens of a window; 0: 1024, or what the model has")
      ->check(CLI::NonNegativeNumber);
  c->add_option("--stride", o->stride, "Tokens that windows advance by; 0: the context")
      ->check(CLI::NonNegativeNumber);
  c->add_option("--limit", o->limit, "At most so many documents and items; 0: all")
      ->check(CLI::NonNegativeNumber);
  c->add_flag("--blind", o->blind, "Leave the contexts out: what the endings alone give away");
  c->add_flag("--items", o->items, "With --json, the log-probabilities of every ending");
  c->add_flag("--show", o->show, "Print the items of the task endings, and nothing else");
  c->add_option("--device", o->device, "auto, cpu, gpu or cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "gpu", "cuda"}));
  c->add_option("--precision", o->precision, "fp32, or bf16 on a GPU")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16"}));
  c->add_flag("--json", o->as_json, "Print JSON");
  c->callback([o] { evaluate(*o); });
}

}  // namespace rose::app
