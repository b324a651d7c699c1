// Answer with log-probabilities.

#include "rose/serve/scores.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>
#include <utility>

namespace rose::serve {
namespace {

// Ask for the log-probabilities of a prompt.
void put(ScoreAsk& ask, const Question& like, std::vector<std::int32_t> prompt, std::size_t from,
         const ModelCard& card) {
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (prompt.size() <= from)
    invalid(fmt::format("Invalid '{}': there is no token to score.", ask.prompt_field),
            ask.prompt_field, "empty_prompt");
  if (length >= card.positions)
    invalid(fmt::format("This model's maximum context length is {} tokens, however you requested "
                        "{} tokens.",
                        card.positions, length),
            ask.prompt_field, "context_length_exceeded");
  Question question = like;
  question.sampling.prompt_logprobs = 0;
  question.sampling.max_tokens = 1;
  question.sampling.temperature = 0.0f;
  ask.tokens.push_back(prompt);
  ask.from.push_back(from);
  question.prompt = std::move(prompt);
  ask.questions.push_back(std::move(question));
  if (ask.questions.size() > most_prompts)
    invalid(fmt::format("Invalid '{}': a request may ask for {} scores.", ask.prompt_field,
                        most_prompts),
            ask.prompt_field, "array_above_max_length");
}

std::vector<std::int32_t> joined(std::vector<std::int32_t> first,
                                 const std::vector<std::int32_t>& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

std::vector<std::int32_t> read_labels(Fields& fields, const ModelCard& card) {
  std::vector<std::int32_t> labels;
  if (const json::array* list = fields.array("label_token_ids", 1, most_prompts))
    for (const json::value& id : *list) {
      if (!id.is_int64()) wrong_type("label_token_ids", "an array of integers", id);
      if (id.get_int64() < 0 || id.get_int64() >= card.vocab)
        invalid(
            fmt::format("Invalid 'label_token_ids': {} is not the id of a token.", id.get_int64()),
            "label_token_ids", "invalid_value");
      labels.push_back(static_cast<std::int32_t>(id.get_int64()));
    }
  return labels;
}

}  // namespace

// Read the request.
ScoreAsk read_scores(const json::object& body, const ModelCard& card) {
  Fields fields(body);
  Ask model;
  read_model(fields, card, model);
  read_place(fields, model.question);
  ScoreAsk ask;
  ask.model = model.model;
  if (!fields.has("query") && !fields.has("items")) {
    for (auto& prompt : read_prompts(fields, card, "prompt", most_prompts))
      put(ask, model.question, std::move(prompt), 1, card);
    fields.ignore({"user"});
    fields.finish();
    return ask;
  }
  const bool first = fields.flag("item_first", false);
  const auto queries = read_prompts(fields, card, "query", 1, !first);
  ask.prompt_field = "items";
  const std::vector<std::int32_t>& query = queries.at(0);
  if (query.empty())
    invalid("Invalid 'query': there is nothing to come after.", "query", "empty_prompt");
  ask.labels = read_labels(fields, card);
  ask.softmax = fields.flag("apply_softmax", false);
  if (first && ask.labels.empty())
    invalid(
        "Invalid 'item_first': it asks for labels after item and query; without "
        "'label_token_ids' the items are scored after the query.",
        "item_first", "invalid_value");
  if (ask.softmax && ask.labels.empty())
    invalid("Invalid 'apply_softmax': there are no 'label_token_ids'.", "apply_softmax",
            "invalid_value");
  for (const auto& item : read_prompts(fields, card, "items", most_prompts, first)) {
    if (item.empty()) invalid("Invalid 'items': an item is empty.", "items", "empty_prompt");
    const auto both = first ? joined(item, query) : joined(query, item);
    if (ask.labels.empty()) put(ask, model.question, both, query.size(), card);
    for (const std::int32_t label : ask.labels)
      put(ask, model.question, joined(both, {label}), both.size(), card);
  }
  fields.ignore({"user"});
  fields.finish();
  return ask;
}

// Collect log-probabilities, write sums.
Scores::Scores(Kitchen kitchen, ScoreAsk ask, std::shared_ptr<Exchange> exchange, Headers headers)
    : Gathering(std::move(kitchen), std::move(ask.questions), ask.prompt_field, std::move(exchange),
                std::move(headers)),
      ask_(std::move(ask)),
      logprobs_(ask_.tokens.size()) {}

void Scores::take(std::size_t question, const infer::Event& event) {
  if (!event.of_prompt) return;
  logprobs_[question].insert(logprobs_[question].end(), event.logprobs.begin(),
                             event.logprobs.end());
}

json::object Scores::score(std::size_t question) const {
  const auto from = static_cast<std::ptrdiff_t>(ask_.from[question]);
  const std::span tokens = std::span(ask_.tokens[question]).subspan(ask_.from[question]);
  const std::vector<float> logprobs(logprobs_[question].begin() + from, logprobs_[question].end());
  const double sum = std::accumulate(logprobs.begin(), logprobs.end(), 0.0);
  const double mean = sum / static_cast<double>(logprobs.size());
  return {{"object", "score"},
          {"index", question},
          {"logprob", sum},
          {"perplexity", std::exp(-mean)},
          {"tokens", json::value_from(std::vector<std::int32_t>(tokens.begin(), tokens.end()))},
          {"token_logprobs", json::value_from(logprobs)}};
}

json::array Scores::label_scores(std::size_t item) const {
  std::vector<double> values;
  for (std::size_t l = 0; l < ask_.labels.size(); ++l)
    values.push_back(std::exp(double{logprobs_[item * ask_.labels.size() + l].back()}));
  const double all = std::accumulate(values.begin(), values.end(), 0.0);
  json::array out;
  for (const double value : values)
    out.emplace_back(!ask_.softmax ? value
                     : all > 0.0   ? value / all
                                   : 1.0 / static_cast<double>(values.size()));
  return out;
}

json::object Scores::whole() {
  for (std::size_t q = 0; q < logprobs_.size(); ++q)
    if (logprobs_[q].size() != ask_.tokens[q].size())
      throw ApiError(500, "The engine has not told every log-probability.", "server_error");
  json::object out{
      {"object", "list"},
      {"model", ask_.model},
      {"usage", {{"prompt_tokens", usage().prompt}, {"total_tokens", usage().prompt}}}};
  if (ask_.labels.empty()) {
    json::array data;
    for (std::size_t q = 0; q < logprobs_.size(); ++q) data.emplace_back(score(q));
    out["data"] = std::move(data);
  } else {
    json::array scores;
    for (std::size_t item = 0; item * ask_.labels.size() < logprobs_.size(); ++item)
      scores.emplace_back(label_scores(item));
    out["object"] = "scoring";
    out["scores"] = std::move(scores);
  }
  return out;
}

}  // namespace rose::serve
