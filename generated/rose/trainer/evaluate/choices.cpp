// Read items, join, score, choose.

#include "rose/trainer/evaluate/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/trainer/evaluate/text_score.h"

namespace rose::trainer {

// Read items from JSON lines.
namespace {

std::size_t label_of(const core::json::value& value, std::size_t endings, std::string_view where) {
  std::int64_t label = -1;
  if (const auto* text = value.if_string())
    std::from_chars(text->data(), text->data() + text->size(), label);
  else if (value.is_int64())
    label = value.as_int64();
  if (label < 0 || label >= static_cast<std::int64_t>(endings)) {
    throw core::Error(core::Code::corrupt,
                      fmt::format("a label from 0 to {} is needed", endings - 1))
        .in(std::string(where));
  }
  return static_cast<std::size_t>(label);
}

ChoiceItem parse_choice(std::string_view line, std::string_view where) {
  const core::json::value value = core::parse_json(line, where);
  const core::json::object& object = core::as_object(value, where);
  const auto key = [&](std::string_view name, std::string_view other) {
    return object.contains(name) ? name : other;
  };
  ChoiceItem item;
  item.group = core::get_string_or(object, "group", "", where);
  item.context = core::get_string(object, key("context", "ctx"), where);
  for (const core::json::value& ending :
       core::get_array(object, key("endings", "choices"), where)) {
    if (!ending.is_string() || ending.as_string().empty())
      throw core::Error(core::Code::corrupt, "an ending is a text").in(std::string(where));
    item.endings.emplace_back(ending.as_string());
  }
  if (item.endings.size() < 2)
    throw core::Error(core::Code::corrupt, "a choice has two endings or more")
        .in(std::string(where));
  const core::json::value* label = core::find(object, "label");
  item.label =
      label_of(label == nullptr ? core::json::value() : *label, item.endings.size(), where);
  return item;
}

}  // namespace

std::vector<ChoiceItem> parse_choices(std::string_view lines, std::string_view where) {
  std::vector<ChoiceItem> items;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = lines.substr(at, end - at);
    at = end + 1, ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    items.push_back(parse_choice(line, fmt::format("{}:{}", where, number)));
  }
  return items;
}

// Tokens of a context, and of an ending.
namespace {

struct Pair {
  Sequence sequence;
  bool straddled = false;
};

Pair join(const text::Tokenizer& tokenizer, const ChoiceItem& item, const std::string& ending,
          const ChoiceOptions& options) {
  std::string context = options.blind ? "" : item.context;
  const std::size_t kept = context.find_last_not_of(" \t\n") + 1;  // 0 when there is nothing else
  std::string between = context.substr(kept);
  context.resize(kept);
  if (between.empty() && !ending.starts_with(' ')) between = " ";
  const std::vector<std::int32_t> open = opening(tokenizer),
                                  before = tokenizer.encode(context, false),
                                  behind = tokenizer.encode(between + ending, false);
  Pair pair;
  std::vector<std::int32_t>& ids = pair.sequence.ids;
  ids = open;
  ids.insert(ids.end(), before.begin(), before.end());
  const auto room = static_cast<std::size_t>(options.context) + 1;
  if (ids.empty() || behind.size() + 1 > room) {
    throw core::Error(core::Code::invalid_argument,
                      ids.empty()
                          ? "this tokenizer has no token to begin with"
                          : fmt::format("an ending of {} tokens does not fit", behind.size()))
        .in(ending);
  }
  if (ids.size() + behind.size() > room)
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(room - behind.size()));
  pair.sequence.first = ids.size();
  ids.insert(ids.end(), behind.begin(), behind.end());
  std::vector<std::int32_t> apart = before;
  apart.insert(apart.end(), behind.begin(), behind.end());
  pair.straddled = tokenizer.encode(context + between + ending, false) != apart;
  return pair;
}

}  // namespace

// Score all endings, and choose.
std::vector<ChoiceScore> score_choices(const LogProbs& log_probs, const text::Tokenizer& tokenizer,
                                       std::span<const ChoiceItem> items,
                                       const ChoiceOptions& options) {
  std::vector<Sequence> sequences;
  std::vector<ChoiceScore> scores;
  for (const ChoiceItem& item : items) {
    ChoiceScore& score = scores.emplace_back();
    score.label = item.label;
    for (const std::string& ending : item.endings) {
      Pair pair = join(tokenizer, item, ending, options);
      score.straddled |= pair.straddled;
      const std::size_t tokens = pair.sequence.ids.size() - pair.sequence.first;
      score.endings.push_back({.tokens = static_cast<std::int64_t>(tokens),
                               .bytes = static_cast<std::int64_t>(ending.size())});
      sequences.push_back(std::move(pair.sequence));
    }
  }
  const std::vector<double> sums = score_sequences(log_probs, sequences, options.most);
  std::size_t next = 0;
  for (ChoiceScore& score : scores)
    for (Score& ending : score.endings) ending.log_prob = sums[next++];
  return scores;
}

std::size_t ChoiceScore::choice(Division division) const {
  const auto value = [&](const Score& s) {
    if (division == Division::tokens) return s.log_prob / static_cast<double>(s.tokens);
    if (division == Division::bytes) return s.log_prob / static_cast<double>(s.bytes);
    return s.log_prob;
  };
  std::size_t best = 0;
  for (std::size_t e = 1; e < endings.size(); ++e)
    if (value(endings[e]) > value(endings[best])) best = e;
  return best;
}

std::size_t count_right(std::span<const ChoiceScore> scores, Division division) {
  return static_cast<std::size_t>(std::ranges::count_if(
      scores, [&](const ChoiceScore& score) { return score.right(division); }));
}

}  // namespace rose::trainer
