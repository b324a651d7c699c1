// Read, encode, hold out, report.

#include "rose/trainer/chat_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::trainer {

namespace fs = std::filesystem;
using core::Code;
using core::Error;

// Find the template where the run keeps it.
ChatEncoder encoder_of(const fs::path& folder, const std::optional<text::Tokenizer>& tokenizer) {
  const fs::path file = folder / "tokenizer_config.json";
  const auto no_template = [&](const char* what) {
    return Error(Code::invalid_argument, what)
        .in("chat.template")
        .hint("a base model has none: name one, chatml, plain or a file");
  };
  if (!tokenizer || !fs::exists(file)) throw no_template("there is no tokenizer with a template");
  const core::json::value value = core::parse_json(core::read_file(file), file.string());
  const core::json::object& object = core::as_object(value, file.string());
  const auto text = [&](const char* key) {
    return std::string(core::get_string_or(object, key, "", file.string()));
  };
  if (text("chat_template").empty()) throw no_template("this model has no chat template");
  return {*tokenizer, text("chat_template"), text("bos_token"), text("eos_token")};
}

bool held_out(std::size_t i, double share) {
  return std::floor(static_cast<double>(i + 1) * share) >
         std::floor(static_cast<double>(i) * share);
}

// Refuse, cut or skip what does not fit into a row.
Fitted fit(std::vector<ChatSequence> sequences, std::int64_t context, const std::string& too_long) {
  Fitted out;
  for (ChatSequence& s : sequences) {
    if (s.cells() > context) {
      if (too_long == "refuse")
        throw Error(
            Code::invalid_argument,
            fmt::format("a conversation of {} tokens, and a row has {}", s.cells(), context))
            .in(s.where)
            .hint("raise batch.context, or say what is done: chat.too_long: cut, or skip");
      if (too_long == "cut") {
        s.ids.resize(static_cast<std::size_t>(context) + 1), s.learnt.resize(s.ids.size());
        ++out.cut;
      }
      if (too_long == "skip" || s.learnt_tokens() == 0) {
        ++out.skipped;
        continue;
      }
    }
    out.sequences.push_back(std::move(s));
  }
  return out;
}

// Make rows of what is learnt, and keep back what is held out.
ChatTask::ChatTask(const TrainConfig& config, const fs::path& folder,
                   const std::optional<text::Tokenizer>& tokenizer)
    : config_(config), encoder_(encoder_of(folder, tokenizer)) {
  std::vector<ChatSequence> train;
  std::size_t conversations = 0;
  std::int64_t cut = 0, skipped = 0;
  for (const std::string& file : config.chat.files) {
    for (const auto& [line, where] : json_lines(file)) {
      Fitted some = fit(encoder_.encode(parse_conversation(line, where)), config.batch.context,
                        config.chat.too_long);
      cut += some.cut, skipped += some.skipped;
      auto& to = held_out(conversations++, config.data.held_out) ? validation_ : train;
      std::ranges::move(some.sequences, std::back_inserter(to));
    }
  }
  if (train.empty())
    throw Error(Code::invalid_argument, "there is no conversation left to learn from")
        .in("data.chat")
        .hint("lower data.held_out, or raise batch.context");
  train_.emplace(std::move(train), config.batch.context, config.seed, config.data.shuffle);
  description_ = fmt::format(
      "{} conversations: {} sequences of {} tokens, {} of them learnt ({:.0f} %), in {} rows "
      "({:.0f} "
      "% full); {} sequences held out",
      conversations, train_->sequences().size(), train_->cells(), train_->learnt(),
      100.0 * static_cast<double>(train_->learnt()) / static_cast<double>(train_->cells()),
      train_->rows(),
      100.0 * static_cast<double>(train_->cells()) /
          static_cast<double>(train_->rows() * config.batch.context),
      validation_.size());
  if (cut + skipped > 0)
    description_ += fmt::format("; too long: {} cut, {} skipped", cut, skipped);
}

// Measure what is held out, and ask as a person would.
LossSum ChatTask::validate(Compute& compute) {
  LossSum sum;
  if (validation_.empty()) return sum;
  PackedSequences rows(validation_, config_.batch.context, config_.seed, false);
  const std::int64_t batches =
      std::min(config_.every.validation_batches,
               (rows.rows() + config_.batch.rows - 1) / config_.batch.rows);
  MicroBatchBuffer batch;
  std::int64_t left = rows.rows();
  for (std::int64_t b = 0; b < batches; ++b, left -= config_.batch.rows) {
    rows.next(std::min(left, config_.batch.rows), batch);
    sum += compute.evaluate(batch.view());
  }
  return sum;
}

std::vector<std::int32_t> ChatTask::prompt(const std::string& text) const {
  return encoder_.prompt({{{"role", "user"}, {"content", text}}});
}

}  // namespace rose::trainer
