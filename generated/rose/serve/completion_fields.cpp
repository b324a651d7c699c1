// Read a completion request.

#include <fmt/format.h>

#include "rose/serve/ask.h"

namespace rose::serve {
namespace {

// Prompts in their four forms.
std::vector<std::int32_t> encode(std::string_view text, const ModelCard& card, bool begin) {
  if (text.empty()) return {};
  std::vector<std::int32_t> ids;
  if (begin) ids.assign(card.tokenizer.prefix().begin(), card.tokenizer.prefix().end());
  card.tokenizer.encode(text, true, ids);
  return ids;
}

std::vector<std::int32_t> read_ids(const json::array& list, const ModelCard& card,
                                   const std::string& path) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const json::value& id = list[i];
    if (!id.is_int64()) wrong_type(fmt::format("{}[{}]", path, i), "an integer", id);
    if (id.get_int64() < 0 || id.get_int64() >= card.vocab)
      invalid(
          fmt::format("Invalid '{}[{}]': {} is not the id of a token.", path, i, id.get_int64()),
          path, "invalid_value");
    ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  }
  return ids;
}

std::vector<std::vector<std::int32_t>> prompts_of_list(const json::array& list,
                                                       const ModelCard& card,
                                                       const std::string& field, std::size_t most,
                                                       bool begin) {
  std::vector<std::vector<std::int32_t>> prompts;
  if (list.empty())
    invalid(
        fmt::format("Invalid '{}': empty array. Expected an array with minimum length 1.", field),
        field, "empty_array");
  if (list[0].is_number()) return {read_ids(list, card, field)};
  if (list.size() > most)
    invalid(fmt::format("Invalid '{}': array too long. Expected an array with maximum length "
                        "{}, but got an array with length {} instead.",
                        field, most, list.size()),
            field, "array_above_max_length");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", field, i);
    if (list[i].is_string())
      prompts.push_back(encode(list[i].get_string(), card, begin));
    else if (list[i].is_array())
      prompts.push_back(read_ids(list[i].get_array(), card, path));
    else
      wrong_type(path, "a string or an array of integers", list[i]);
  }
  return prompts;
}

}  // namespace

// The whole request.
std::vector<std::vector<std::int32_t>> read_prompts(Fields& fields, const ModelCard& card,
                                                    const std::string& field, std::size_t most,
                                                    bool begin) {
  fields.require(field);
  const json::value& prompt = *fields.find(field);
  if (prompt.is_string()) return {encode(prompt.get_string(), card, begin)};
  if (!prompt.is_array())
    wrong_type(field, "a string, an array of strings, or an array of integers", prompt);
  return prompts_of_list(prompt.get_array(), card, field, most, begin);
}

Ask read_completion(const json::object& body, const ModelCard& card) {
  Fields fields(body);
  Ask ask;
  ask.style = Ask::Style::completion;
  read_model(fields, card, ask);
  ask.prompts = read_prompts(fields, card, "prompt", most_prompts);
  if (fields.has("suffix"))
    invalid("Unsupported parameter: 'suffix'. This model does not fill in the middle of a text.",
            "suffix", "unsupported_parameter");
  read_sampling(fields, card, ask);
  read_stream(fields, ask);
  infer::Sampling& s = ask.question.sampling;
  constexpr std::int64_t usual = 16, most_top = 20;
  ask.echo = fields.flag("echo", false);
  s.max_tokens = fields.integer("max_tokens", usual, ask.echo ? 0 : 1);
  ask.no_answer = s.max_tokens == 0;
  if (ask.no_answer) s.max_tokens = 1;  // a step is needed for the prompt anyway
  ask.logprobs = fields.has("logprobs");
  s.logprobs = static_cast<int>(fields.integer("logprobs", -1, 0, most_top));
  s.processed_logprobs = fields.flag("processed_logprobs", false);
  if (ask.echo && ask.logprobs) s.prompt_logprobs = s.logprobs;
  const auto best_of = static_cast<int>(fields.integer("best_of", ask.n, 1, infer::most_choices));
  if (best_of < ask.n)
    invalid(fmt::format("Invalid 'best_of': {} is less than n = {}.", best_of, ask.n), "best_of",
            "invalid_value");
  if (best_of > ask.n && ask.stream)
    invalid("Invalid 'best_of': the best answers are known at the end, so they cannot be streamed.",
            "best_of", "invalid_value");
  if (best_of > ask.n && s.temperature == 0.0f)
    invalid("Invalid 'best_of': at temperature 0 all answers would be the same one.", "best_of",
            "invalid_value");
  s.n = best_of;
  if (best_of > ask.n && s.logprobs < 0) s.logprobs = 0;
  fields.finish();
  fit_context(ask, card, true, "prompt");
  return ask;
}

Ask read_generate(const json::object& body, const ModelCard& card) {
  Fields fields(body);
  Ask ask;
  ask.style = Ask::Style::generate;
  read_model(fields, card, ask);
  ask.prompts = read_prompts(fields, card, "prompt", most_prompts);
  if (ask.prompts.size() != 1)
    invalid("Invalid 'prompt': one text is expected here.", "prompt", "invalid_value");
  read_sampling(fields, card, ask);
  if (ask.n != 1) invalid("Invalid 'n': one answer is given here.", "n", "invalid_value");
  ask.stream = fields.flag("stream", false);
  constexpr std::int64_t usual = 64;
  ask.question.sampling.max_tokens =
      fields.integer("max_new_tokens", fields.integer("max_tokens", usual, 1), 1);
  fields.finish();
  fit_context(ask, card, true, "prompt");
  return ask;
}

}  // namespace rose::serve
