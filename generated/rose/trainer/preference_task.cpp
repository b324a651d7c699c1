// Read, render, hold out, ask the reference.

#include "rose/trainer/preference_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/trainer/prepare_run.h"

namespace rose::trainer {

namespace fs = std::filesystem;
namespace json = core::json;
using core::Code;
using core::Error;

// Read a line, and refuse what cannot be meant.
namespace {

/// A text, or a list of one message of the assistant.
std::string answer_in(const json::object& object, const char* key, const std::string& where) {
  const json::value* const value = core::find(object, key);
  if (value == nullptr)
    throw Error(Code::corrupt, fmt::format("there is no \"{}\"", key))
        .in(where)
        .hint("a line has a prompt and chosen and rejected, or completion and label");
  std::string text;
  if (value->is_array() && value->as_array().size() == 1) {
    text = core::get_string(core::as_object(value->as_array()[0], where), "content", where);
  } else {
    text = core::get_string(object, key, where);
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(Code::invalid_argument, fmt::format("{} is an answer without words", key))
        .in(where)
        .hint("to prefer silence is not taught this way: remove the line");
  return text;
}

}  // namespace

Preference parse_preference(std::string_view line, const std::string& where) {
  const json::value value = core::parse_json(line, where);
  const json::object& object = core::as_object(value, where);
  Preference out{.prompt = {}, .answers = {}, .where = where};
  const json::value* const prompt = core::find(object, "prompt");
  if (prompt != nullptr && prompt->is_array()) {
    out.prompt = conversation_of(prompt->as_array(), where, false).messages;
  } else {
    out.prompt = {{{"role", "user"}, {"content", core::get_string(object, "prompt", where)}}};
  }
  if (out.prompt.back().as_object().at("role").as_string() == "assistant")
    throw Error(Code::invalid_argument, "the prompt ends with an answer")
        .in(where)
        .hint("the answers that are compared stand in chosen and rejected");
  if (core::find(object, "completion") != nullptr) {
    out.answers.emplace_back(answer_in(object, "completion", where),
                             core::get_bool(object, "label", where));
    return out;
  }
  out.answers.emplace_back(answer_in(object, "chosen", where), true);
  out.answers.emplace_back(answer_in(object, "rejected", where), false);
  if (out.answers[0].first == out.answers[1].first)
    throw Error(Code::invalid_argument, "both answers are the same")
        .in(where)
        .hint("there is nothing to prefer: remove the line");
  return out;
}

// Two sequences to an item.
ChatSequence PreferenceTask::sequence(const Preference& line, const std::string& answer) const {
  json::array messages = line.prompt;
  messages.push_back({{"role", "assistant"}, {"content", answer}});
  Conversation conversation = conversation_of(messages, line.where, true);
  std::fill(conversation.learnt.begin(), conversation.learnt.end() - 1, std::uint8_t{0});
  return std::move(encoder_.encode(conversation).back());
}

PreferenceTask::Sequences PreferenceTask::items(const std::vector<Preference>& lines) {
  const bool single = config_.preference.loss == PreferenceLoss::kto;
  Sequences out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Preference& line = lines[i];
    if (!single) {
      if (line.answers.size() != 2)
        throw Error(Code::invalid_argument, "this loss compares two answers, and here is one")
            .in(line.where)
            .hint("preference.loss: kto learns from single answers");
      for (const auto& [answer, good] : line.answers) out.push_back(sequence(line, answer));
      continue;
    }
    for (const auto& [answer, good] : line.answers) {
      out.push_back(sequence(line, answer));
      learn_verdict(out.back(), good);
      out.push_back(sequence(line, lines[(i + 1) % lines.size()].answers[0].first));
    }
  }
  return out;
}

void PreferenceTask::learn_verdict(const ChatSequence& sequence, bool good) {
  MicroBatchBuffer cells;
  cells.clear();
  push_sequence(sequence, cells);
  const auto [found, fresh] = known_->try_emplace(answer_key(cells.ids, cells.targets),
                                                  KnownAnswer{.reference = 0.0, .good = good});
  if (!fresh && found->second.good != good)
    throw Error(Code::invalid_argument, "the same answer to the same prompt is called good and bad")
        .in(sequence.where)
        .hint("remove one of the lines");
}

// Hold out lines, keep what fits.
PreferenceTask::PreferenceTask(const TrainConfig& config, const fs::path& folder,
                               const std::optional<text::Tokenizer>& tokenizer)
    : config_(config), folder_(folder), encoder_(encoder_of(folder, tokenizer)) {
  std::vector<Preference> train, held;
  for (const std::string& file : config.preference_files) {
    std::size_t number = 0;
    for (const auto& [line, where] : json_lines(file))
      (held_out(number++, config.data.held_out) ? held : train)
          .push_back(parse_preference(line, where));
  }
  std::int64_t skipped = 0;
  const auto fitting = [&](Sequences all) {
    Sequences out;
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
      const std::int64_t cells = all[i].cells() + all[i + 1].cells();
      if (cells > config.batch.context && config.chat.too_long == "skip") {
        ++skipped;
        continue;
      }
      out.push_back(std::move(all[i])), out.push_back(std::move(all[i + 1]));
    }
    return out;
  };
  train_.emplace(fitting(items(train)), config.batch.context, config.seed, config.data.shuffle, 2);
  validation_ = fitting(items(held));
  description_ = fmt::format(
      "{} lines of preferences: {} items of two sequences, {} tokens, {} of them answers, in {} "
      "rows; {} items held out",
      train.size() + held.size(), train_->sequences().size() / 2, train_->cells(), train_->learnt(),
      train_->rows(), validation_.size() / 2);
  if (skipped > 0) description_ += fmt::format("; too long: {} skipped", skipped);
}

// Ask the reference, or remember what it said.
std::unique_ptr<Compute> PreferenceTask::objective(std::unique_ptr<Compute> device) {
  const fs::path kept = folder_ / "reference.json";
  if (has_reference(config_.preference.loss)) {
    Sequences all = train_->sequences();
    all.insert(all.end(), validation_.begin(), validation_.end());
    json::object said;
    if (fs::exists(kept) && fs::exists(folder_ / "config.yaml")) {
      const json::value value = core::parse_json(core::read_file(kept), kept.string());
      said = core::as_object(value, kept.string());
    } else {
      std::unique_ptr<Compute> other;
      if (!config_.reference.empty()) {
        TrainConfig named = config_;
        named.model.from = config_.reference, named.lora.rank = 0;
        other =
            device_of(named, prepare_weights(named, encoder_.tokenizer()), core::default_pool());
      }
      Compute& reference = other ? *other : *device;
      for (const auto& [key, sum] :
           answer_logprobs(reference, all, config_.tokens_per_micro_batch()))
        said[fmt::format("{:016x}", key)] = std::bit_cast<std::int64_t>(sum);
      core::write_file_atomic(kept, core::pretty_json(said));
    }
    for (const auto& [name, bits] : said) {
      std::uint64_t key = 0;
      std::from_chars(name.data(), name.data() + name.size(), key, 16);
      (*known_)[key].reference = std::bit_cast<double>(bits.to_number<std::int64_t>());
    }
  }
  return std::make_unique<PreferenceCompute>(std::move(device), config_.preference, known_,
                                             record_);
}

// Give items, and a weight to each.
namespace {

/// 1 at the first learnt token of every second sequence: the sum of weights is the number of items.
void count_items(MicroBatchBuffer& batch) {
  batch.weights.assign(batch.ids.size(), 0.0f);
  for (std::size_t s = 0; s + 1 < batch.row_offsets.size(); s += 2) {
    auto t = static_cast<std::size_t>(batch.row_offsets[s]);
    while (batch.targets[t] < 0) ++t;
    batch.weights[t] = 1.0f;
  }
}

}  // namespace

void PreferenceTask::next(MicroBatchBuffer& out) {
  train_->next(config_.batch.rows, out);
  count_items(out);
}

LossSum PreferenceTask::validate(Compute& compute) {
  LossSum sum;
  record_->clear();
  if (validation_.empty()) return sum;
  PackedSequences rows(validation_, config_.batch.context, config_.seed, false, 2);
  MicroBatchBuffer batch;
  std::int64_t left = rows.rows(), batches = config_.every.validation_batches;
  for (; left > 0 && batches > 0; left -= config_.batch.rows, --batches) {
    rows.next(std::min(left, config_.batch.rows), batch);
    count_items(batch);
    sum += compute.evaluate(batch.view());
  }
  return sum;
}

std::vector<std::int32_t> PreferenceTask::prompt(const std::string& text) const {
  return encoder_.prompt({{{"role", "user"}, {"content", text}}});
}

}  // namespace rose::trainer
