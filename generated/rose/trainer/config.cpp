// The table of keys.

#include "rose/trainer/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <type_traits>

#include "rose/core/error.h"

namespace rose::trainer {

using core::Code;
using core::Error;

namespace {

// Turn text into a value, and a value into text.
[[noreturn]] void bad_value(const std::string& key, const std::string& value, std::string what) {
  throw Error(Code::invalid_argument, fmt::format("\"{}\" is not {}", value, what)).in(key);
}

template <class T>
T to_number(const std::string& key, std::string text) {
  const std::string given = text;
  std::erase(text, '_');
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end)
    bad_value(key, given, std::is_floating_point_v<T> ? "a number" : "a whole number");
  return value;
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

template <class T>
ConfigKey number_key(const char* name, const char* help, T& value) {
  return {name, help, [name, &value](const std::string& text) { value = to_number<T>(name, text); },
          [&value] { return fmt::format("{}", value); }};
}

ConfigKey text_key(const char* name, const char* help, std::string& value) {
  return {name, help, [&value](const std::string& text) { value = text; },
          [&value] { return in_quotes(value); }};
}

ConfigKey flag_key(const char* name, const char* help, bool& value) {
  return {name, help,
          [name, &value](const std::string& text) {
            if (text != "true" && text != "false") bad_value(name, text, "true or false");
            value = text == "true";
          },
          [&value] { return value ? "true" : "false"; }};
}

ConfigKey list_key(const char* name, const char* help, std::vector<std::string>& value) {
  return {name, help,
          [&value](const std::string& text) {
            value.clear();
            for (std::size_t at = 0; at < text.size();) {
              const std::size_t end = std::min(text.find('\n', at), text.size());
              if (end > at) value.push_back(text.substr(at, end - at));
              at = end + 1;
            }
          },
          [&value] {
            std::string out = "[";
            for (const std::string& item : value)
              out += (out.size() > 1 ? ", " : "") + in_quotes(item);
            return out + "]";
          }};
}

using Names = std::vector<std::string>;

ConfigKey choice_key(const char* name, const char* help, std::string& value, Names names) {
  return {name, help,
          [name, &value, names = std::move(names)](const std::string& text) {
            if (!std::ranges::count(names, text))
              bad_value(name, text, fmt::format("one of {}", fmt::join(names, ", ")));
            value = text;
          },
          [&value] { return value; }};
}

template <class T>
ConfigKey enum_key(const char* name, const char* help, T& value, std::map<std::string, T> names) {
  return {name, help,
          [name, &value, names](const std::string& text) {
            const auto found = names.find(text);
            Names all;
            for (const auto& [known, unused] : names) all.push_back(known);
            if (found == names.end())
              bad_value(name, text, fmt::format("one of {}", fmt::join(all, ", ")));
            value = found->second;
          },
          [&value, names] {
            for (const auto& [known, meant] : names)
              if (meant == value) return known;
            return std::string("?");
          }};
}

}  // namespace

// Every key, with a sentence.
namespace {

// Know the tasks and what each may be told.
Names task_names() {
  return {"pretrain", "sft", "preference"};
}

void preference_keys(TrainConfig& c, std::vector<ConfigKey>& keys) {
  PreferenceOptions& o = c.preference;
  keys.push_back(list_key("data.preferences", "preference: JSON lines of pairs, or of answers",
                          c.preference_files));
  keys.push_back(enum_key<PreferenceLoss>("preference.loss", "dpo, ipo, kto, simpo, orpo", o.loss,
                                          {{"dpo", PreferenceLoss::dpo},
                                           {"ipo", PreferenceLoss::ipo},
                                           {"kto", PreferenceLoss::kto},
                                           {"simpo", PreferenceLoss::simpo},
                                           {"orpo", PreferenceLoss::orpo}}));
  keys.push_back(number_key(
      "preference.beta", "dpo, kto, simpo: scale of the margin; ipo: tau; orpo: lambda", o.beta));
  keys.push_back(number_key("preference.smoothing", "dpo: share of wrong verdicts", o.smoothing));
  keys.push_back(number_key("preference.margin", "simpo: gamma", o.margin));
  keys.push_back(number_key(
      "preference.anchor", "dpo, ipo, simpo: weight of the preferred answer's own loss", o.anchor));
  keys.push_back(number_key("preference.good", "kto: weight of good answers", o.good));
  keys.push_back(number_key("preference.bad", "kto: weight of bad answers", o.bad));
  keys.push_back(
      text_key("preference.reference", "a model; empty: that of model.from", c.reference));
}

void task_keys(TrainConfig& c, std::vector<ConfigKey>& keys) {
  keys.push_back(list_key("data.chat", "sft: JSON lines of conversations", c.chat.files));
  keys.push_back(
      text_key("chat.template", "chatml, plain or a file; empty: the model's own", c.chat.form));
  keys.push_back(choice_key("chat.too_long", "a conversation longer than a row: refuse, cut, skip",
                            c.chat.too_long, {"refuse", "cut", "skip"}));
  keys.push_back(
      number_key("lora.rank", "of the adapter that is trained; 0: all weights", c.lora.rank));
  keys.push_back(
      number_key("lora.alpha", "the change is multiplied by alpha / rank", c.lora.alpha));
  keys.push_back(number_key("lora.dropout", "share of an adapter's inputs left out in training",
                            c.lora.dropout));
  keys.push_back(
      list_key("lora.targets", "matrices of a block: q, k, v, o, gate, up, down", c.lora.targets));
  preference_keys(c, keys);
}

void run_keys(TrainConfig& c, std::vector<ConfigKey>& keys) {
  keys.push_back(text_key("name", "of the run", c.name));
  keys.push_back(text_key("out", "folder of the run; empty: runs/NAME", c.out));
  keys.push_back(choice_key("task", "what is learnt", c.task, task_names()));
  keys.push_back(number_key("seed", "same seed, same run, to the bit", c.seed));
  keys.push_back(number_key("steps", "optimizer steps in all", c.steps));
  keys.push_back(
      choice_key("device", "auto, cpu or gpu (cuda)", c.device, {"auto", "cpu", "gpu", "cuda"}));
  keys.push_back(choice_key("precision", "fp32, tf32, bf16 or fp16; the last three on a GPU",
                            c.precision, {"fp32", "tf32", "bf16", "fp16"}));
  keys.push_back(choice_key(
      "recompute",
      "activations taken again: none, selective, blocks; auto: none on a CPU, else selective",
      c.recompute, {"auto", "none", "selective", "blocks"}));
  keys.push_back(number_key("threads", "of the CPU; 0: all", c.threads));
  keys.push_back(number_key("peak_flops",
                            "of the machine in this precision, for MFU; 0: what the device says",
                            c.peak_flops));
}

void model_keys(TrainConfig& c, std::vector<ConfigKey>& keys) {
  using model::Family, model::Activation, model::NormKind;
  model::Config& m = c.model.shape;
  keys.push_back(
      text_key("model.from", "checkpoint to go on from; empty: fresh weights", c.model.from));
  keys.push_back(enum_key<Family>("model.family", "of a fresh model: gpt2, llama, qwen2, qwen3",
                                  m.family,
                                  {{"gpt2", Family::gpt2},
                                   {"llama", Family::llama},
                                   {"qwen2", Family::qwen2},
                                   {"qwen3", Family::qwen3}}));
  keys.push_back(number_key("model.vocab_size",
                            "0: the tokenizer's, rounded up to a multiple of 64", m.vocab_size));
  keys.push_back(number_key("model.layers", "blocks", m.layers));
  keys.push_back(number_key("model.hidden", "width of the residual stream", m.hidden));
  keys.push_back(number_key("model.heads", "query heads", m.heads));
  keys.push_back(number_key("model.kv_heads", "key and value heads", m.kv_heads));
  keys.push_back(number_key("model.head_dim", "width of a head", m.head_dim));
  keys.push_back(number_key("model.ffn", "width of the feed-forward layer", m.ffn));
  keys.push_back(number_key("model.max_positions", "longest context", m.max_positions));
  keys.push_back(number_key("model.norm_eps", "added to the mean square", m.norm_eps));
  keys.push_back(number_key("model.rope_theta", "base of the rotary frequencies", m.rope_theta));
  keys.push_back(flag_key("model.tied_head", "the head is the embedding", m.tied_head));
}

void data_keys(TrainConfig& c, std::vector<ConfigKey>& keys) {
  keys.push_back(text_key("tokenizer.from",
                          "tokenizer.json, GGUF or model folder; empty: the model's",
                          c.tokenizer.from));
  keys.push_back(number_key("tokenizer.vocabulary",
                            "above 0: learn one of this size from data.text",
                            c.tokenizer.vocabulary));
  keys.push_back(list_key("tokenizer.special", "tokens of a learnt one beside <|endoftext|>",
                          c.tokenizer.special));
  keys.push_back(list_key("data.text", "files or folders of text, tokenised when the run begins",
                          c.data.text));
  keys.push_back(list_key("data.train", "token shards, each PATH or PATH@WEIGHT", c.data.train));
  keys.push_back(list_key("data.validation", "token shards of held-out text", c.data.validation));
  keys.push_back(
      number_key("data.held_out", "part of data.text kept for validation", c.data.held_out));
  keys.push_back(choice_key("data.packing",
                            "concatenate (no padding) or best_fit (documents are not cut)",
                            c.data.packing, {"concatenate", "best_fit"}));
  keys.push_back(flag_key("data.shuffle", "documents in random order", c.data.shuffle));
  keys.push_back(number_key("batch.context", "tokens of a row", c.batch.context));
  keys.push_back(
      number_key("batch.rows", "rows of a micro-batch: a matter of memory", c.batch.rows));
  keys.push_back(number_key("batch.tokens", "tokens of a step", c.batch.tokens));
  keys.push_back(number_key("batch.grad_groups",
                            "groups of micro-batches, added by a tree; 0: as many as processes",
                            c.batch.grad_groups));
}

void optimizer_keys(TrainConfig& c, std::vector<ConfigKey>& keys) {
  OptimizerOptions& o = c.optimizer;
  keys.push_back(
      number_key("objective.z_loss", "coefficient of the squared log-sum-exp", c.z_loss));
  keys.push_back(enum_key<Method>("optimizer.method", "adamw, or muon for the matrices of blocks",
                                  o.method, {{"adamw", Method::adamw}, {"muon", Method::muon}}));
  keys.push_back(number_key("optimizer.rate", "peak learning rate", c.rate.peak));
  keys.push_back(number_key("optimizer.last_rate", "learning rate at the end", c.rate.last));
  keys.push_back(enum_key<RateShape>("optimizer.schedule", "constant, linear, cosine, wsd",
                                     c.rate.shape,
                                     {{"constant", RateShape::constant},
                                      {"linear", RateShape::linear},
                                      {"cosine", RateShape::cosine},
                                      {"wsd", RateShape::wsd}}));
  keys.push_back(number_key("optimizer.warmup", "steps of linear warm-up", c.rate.warmup));
  keys.push_back(number_key("optimizer.decay_steps", "wsd: steps of the final fall", c.rate.decay));
  keys.push_back(number_key("optimizer.clip", "largest gradient norm; 0 does not clip", c.clip));
  keys.push_back(number_key("optimizer.beta1", "memory of the mean", o.beta1));
  keys.push_back(number_key("optimizer.beta2", "memory of the squares", o.beta2));
  keys.push_back(number_key("optimizer.epsilon", "added to the root of the squares", o.epsilon));
  keys.push_back(number_key("optimizer.weight_decay", "of what decays", o.weight_decay));
  keys.push_back(
      flag_key("optimizer.decay_embeddings", "tables and head decay", o.decay_embeddings));
  keys.push_back(flag_key("optimizer.decay_norms", "norms decay", o.decay_norms));
  keys.push_back(flag_key("optimizer.decay_biases", "biases decay", o.decay_biases));
  keys.push_back(number_key("optimizer.embedding_rate", "rate of tables and head, as a multiple",
                            o.embedding_rate));
  keys.push_back(
      number_key("optimizer.muon_rate", "rate of Muon's matrices, as a multiple", o.muon_rate));
  keys.push_back(number_key("optimizer.muon_momentum", "memory of Muon's mean", o.muon_momentum));
  keys.push_back(
      number_key("optimizer.muon_iterations", "rounds of the polynomial", o.muon_iterations));
  keys.push_back(
      list_key("optimizer.frozen", "parameters whose name begins so are not trained", o.frozen));
}

void record_keys(TrainConfig& c, std::vector<ConfigKey>& keys) {
  keys.push_back(
      number_key("watch.window", "values that a spike is measured against", c.watch.window));
  keys.push_back(
      number_key("watch.threshold", "of a spike, in standard deviations", c.watch.threshold));
  keys.push_back(
      flag_key("watch.skip", "leave out a step whose loss or norm stands out", c.watch.skip));
  keys.push_back(number_key(
      "watch.give_up", "stop after so many steps in a row that are not finite", c.watch.give_up));
  keys.push_back(number_key("every.log", "steps between lines of the log", c.every.log));
  keys.push_back(
      number_key("every.validate", "steps between validations; 0: never", c.every.validate));
  keys.push_back(number_key("every.sample", "steps between samples; 0: never", c.every.sample));
  keys.push_back(number_key("every.checkpoint", "steps between checkpoints; 0: only at the end",
                            c.every.checkpoint));
  keys.push_back(number_key("every.keep", "checkpoints that stay", c.every.keep));
  keys.push_back(number_key("every.validation_batches", "micro-batches of a validation",
                            c.every.validation_batches));
  keys.push_back(text_key("sample.prompt", "what the model is asked to continue", c.sample.prompt));
  keys.push_back(number_key("sample.tokens", "length of a sample", c.sample.tokens));
  keys.push_back(number_key("sample.temperature", "0: always the likeliest", c.sample.temperature));
}

}  // namespace

std::vector<ConfigKey> config_keys(TrainConfig& config) {
  std::vector<ConfigKey> keys;
  run_keys(config, keys);
  model_keys(config, keys);
  data_keys(config, keys);
  task_keys(config, keys);
  optimizer_keys(config, keys);
  record_keys(config, keys);
  return keys;
}

// Refuse what cannot be, and say what would fit.
namespace {

[[noreturn]] void refuse(const char* key, std::string what, std::string hint) {
  throw Error(Code::invalid_argument, std::move(what)).in(key).hint(std::move(hint));
}

void at_least(const char* key, std::int64_t value, std::int64_t least) {
  if (value < least)
    refuse(key, fmt::format("{} is {}", key, value), fmt::format("it must be at least {}", least));
}

void check_batch(const TrainConfig& c) {
  at_least("batch.context", c.batch.context, 1);
  at_least("batch.rows", c.batch.rows, 1);
  const std::int64_t micro = c.tokens_per_micro_batch();
  at_least("batch.tokens", c.batch.tokens, 1);
  at_least("batch.grad_groups", c.batch.grad_groups, 0);
  if (c.batch.tokens % micro == 0) return;
  const std::int64_t below = c.batch.tokens / micro * micro, above = below + micro;
  refuse(
      "batch.tokens",
      fmt::format("a step of {} tokens is no whole number of micro-batches of {} rows of {} tokens",
                  c.batch.tokens, c.batch.rows, c.batch.context),
      below > 0 ? fmt::format("{} or {} would be", below, above)
                : fmt::format("{} would be", above));
}

void check_shape(const TrainConfig& c) {
  const model::Config& m = c.model.shape;
  if (!c.model.from.empty()) return;
  at_least("model.layers", m.layers, 1);
  at_least("model.heads", m.heads, 1);
  at_least("model.kv_heads", m.kv_heads, 1);
  at_least("model.hidden", m.hidden, 1);
  at_least("model.head_dim", m.head_dim, 1);
  at_least("model.ffn", m.ffn, 1);
  if (m.heads % m.kv_heads != 0)
    refuse("model.kv_heads",
           fmt::format("{} query heads cannot share {} key heads equally", m.heads, m.kv_heads),
           "kv_heads must divide heads");
  if (m.family != model::Family::gpt2 && m.head_dim % 2 != 0)
    refuse("model.head_dim",
           fmt::format("a head of width {} has no whole pairs to rotate", m.head_dim),
           "make it even");
  if (c.batch.context > m.max_positions)
    refuse("batch.context",
           fmt::format("rows of {} tokens, and the model has {} positions", c.batch.context,
                       m.max_positions),
           "shorten the rows or raise model.max_positions");
}

// Ask a task for what it needs.

// Look at an adapter's settings.
void check_lora(const TrainConfig& c) {
  at_least("lora.rank", c.lora.rank, 0);
  if (c.lora.rank == 0) return;
  if (c.model.from.empty())
    refuse("lora.rank", "an adapter changes a model that is there, and this one is fresh",
           "name one in model.from, or lora.rank=0");
  if (c.optimizer.method != Method::adamw || !c.optimizer.frozen.empty())
    refuse("lora.rank", "an adapter is trained by AdamW, and everything else is frozen",
           "leave optimizer.method and optimizer.frozen as they are");
  if (!(c.lora.dropout >= 0 && c.lora.dropout < 1))
    refuse("lora.dropout", fmt::format("a share of {}", c.lora.dropout),
           "it must be at least 0 and below 1");
  if (c.lora.targets.empty()) refuse("lora.targets", "there is nothing to adapt", "name a matrix");
  for (const std::string& target : c.lora.targets) {
    constexpr std::array<std::string_view, 7> all{"q", "k", "v", "o", "gate", "up", "down"};
    if (std::ranges::find(all, target) == all.end())
      refuse("lora.targets", fmt::format("\"{}\" is no matrix of a block", target),
             fmt::format("they are {}", fmt::join(all, ", ")));
  }
}

void check_preferences(const TrainConfig& c) {
  if (c.preference_files.empty())
    refuse("data.preferences", "there are no preferences to learn",
           "name files of JSON lines in data.preferences");
  if (!(c.preference.beta > 0))
    refuse("preference.beta", fmt::format("beta is {}", c.preference.beta), "it must be above 0");
  if (!(c.preference.smoothing >= 0 && c.preference.smoothing < 0.5))
    refuse("preference.smoothing", fmt::format("{} of the verdicts wrong", c.preference.smoothing),
           "it must be at least 0 and below 0.5");
  if (c.chat.too_long == "cut")
    refuse("chat.too_long", "a pair whose answers are cut is another pair",
           "refuse or skip what is too long");
  if (c.z_loss > 0)
    refuse("objective.z_loss", "weights of preferences may be negative, and a z-loss with them",
           "leave it at 0");
}

void check_task(const TrainConfig& c) {
  check_lora(c);
  if (c.task == "pretrain") {
    if (c.data.text.empty() && c.data.train.empty())
      refuse("data.train", "there is nothing to train on",
             "name shards in data.train, or text files in data.text");
    return;
  }
  // What each task is given.
  if (c.task == "preference") return check_preferences(c);
  if (c.chat.files.empty())
    refuse("data.chat", fmt::format("{} needs conversations", c.task),
           "name files of JSON lines in data.chat");
}

}  // namespace

void check(const TrainConfig& c) {
  at_least("steps", c.steps, 1);
  check_batch(c);
  check_shape(c);
  at_least("optimizer.warmup", c.rate.warmup, 0);
  if (c.rate.warmup >= c.steps)
    refuse("optimizer.warmup",
           fmt::format("{} steps of warm-up in a run of {} steps", c.rate.warmup, c.steps),
           "the peak would never be reached: lower it");
  if (c.rate.shape == RateShape::wsd && c.rate.decay > c.steps - c.rate.warmup)
    refuse("optimizer.decay_steps",
           fmt::format("{} steps of decay do not fit behind {} of warm-up in {} steps",
                       c.rate.decay, c.rate.warmup, c.steps),
           "lower it");
  if (!(c.rate.peak > 0))
    refuse("optimizer.rate", fmt::format("the peak rate is {}", c.rate.peak), "it must be above 0");
  check_task(c);
  if (c.tokenizer.vocabulary > 0 && c.data.text.empty())
    refuse("tokenizer.vocabulary", "a vocabulary can only be learnt from text",
           "name it in data.text");
  at_least("watch.window", c.watch.window, 8);
  parameter_rules({}, c.optimizer);
}

// Find the name that was meant.
std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  const auto distance = [&](std::string_view other) {
    std::vector<std::size_t> row(other.size() + 1);
    for (std::size_t j = 0; j <= other.size(); ++j) row[j] = j;
    for (std::size_t i = 0; i < name.size(); ++i) {
      std::size_t diagonal = std::exchange(row[0], i + 1);
      for (std::size_t j = 0; j < other.size(); ++j) {
        const std::size_t replaced = diagonal + (name[i] == other[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
      }
    }
    return row.back();
  };
  // A key may have been named without its section: "warmup" means "optimizer.warmup".
  const auto apart = [&](const std::string& known) {
    const std::size_t dot = known.find('.');
    return std::min(distance(known), dot == std::string::npos
                                         ? known.size() + name.size()
                                         : distance(std::string_view(known).substr(dot + 1)) + 1);
  };
  return names.empty() ? "" : *std::ranges::min_element(names, {}, apart);
}

}  // namespace rose::trainer
