// Fields that every request has.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "rose/serve/ask.h"

namespace rose::serve {

// Which model, and streamed or not.
bool ModelCard::called(const std::string& given) const {
  return given == name || std::ranges::find(aliases, given) != aliases.end();
}

void read_model(Fields& fields, const ModelCard& card, Ask& ask) {
  ask.model = fields.text("model", card.name);
  if (card.called(ask.model)) return;
  if (card.adapters->has(ask.model)) {
    ask.question.adapter = ask.model;
    return;
  }
  throw ApiError(
      404,
      fmt::format("The model '{}' does not exist; this server has '{}'.", ask.model, card.name),
      "invalid_request_error", "model", "model_not_found");
}

void read_stream(Fields& fields, Ask& ask) {
  ask.stream = fields.flag("stream", false);
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!ask.stream)
    invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            "stream_options", "invalid_value");
  Fields inner(*options, "stream_options");
  ask.include_usage = inner.flag("include_usage", false);
  ask.usage_each = inner.flag("continuous_usage_stats", false);
  inner.ignore({"include_obfuscation"});
  inner.finish();
}

// Stops and biases.
void read_stops(Fields& fields, infer::Sampling& s) {
  constexpr std::size_t most_stops = 4, most_ids = 64;
  const auto add = [&](const json::value& text, const std::string& path) {
    if (!text.is_string()) wrong_type(path, "a string", text);
    if (text.get_string().empty())
      invalid(fmt::format("Invalid '{}': empty string. A stop must have a character.", path), path,
              "empty_string");
    s.stop.emplace_back(text.get_string());
  };
  if (const json::value* stop = fields.find("stop"); stop != nullptr && stop->is_string()) {
    add(*stop, "stop");
  } else if (const json::array* stops = fields.array("stop", 1, most_stops)) {
    for (std::size_t i = 0; i < stops->size(); ++i) add((*stops)[i], fmt::format("stop[{}]", i));
  }
  if (const json::array* ids = fields.array("stop_token_ids", 0, most_ids))
    for (const json::value& id : *ids) {
      if (!id.is_int64()) wrong_type("stop_token_ids", "an array of integers", id);
      s.stop_token_ids.push_back(static_cast<std::int32_t>(id.get_int64()));
    }
}

void read_bias(Fields& fields, const ModelCard& card, infer::Sampling& s) {
  const json::object* biases = fields.object("logit_bias");
  if (biases == nullptr) return;
  constexpr std::size_t most_biases = 1024;
  constexpr double most = 100.0;
  if (biases->size() > most_biases)
    invalid(fmt::format("Invalid 'logit_bias': at most {} tokens can be biased.", most_biases),
            "logit_bias", "invalid_value");
  for (const auto& [key, value] : *biases) {
    std::int32_t id = -1;
    const char* end = key.data() + key.size();
    if (std::from_chars(key.data(), end, id).ptr != end || id < 0 || id >= card.vocab)
      invalid(fmt::format("Invalid key in 'logit_bias': '{}' is not the id of a token.",
                          std::string_view(key)),
              "logit_bias", "invalid_value");
    if (!value.is_number()) wrong_type("logit_bias", "an object with numbers", value);
    const auto bias = value.to_number<double>();
    if (!(bias >= -most && bias <= most))
      invalid(fmt::format("Invalid value in 'logit_bias': {} is outside [-100, 100].", bias),
              "logit_bias", "invalid_value");
    s.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

// The numbers of a choice.
void read_warmth(Fields& fields, infer::Sampling& s) {
  constexpr double warm = 2.0;
  s.temperature = static_cast<float>(fields.number("temperature", 1.0, 0.0, warm));
  s.top_p = static_cast<float>(fields.number("top_p", 1.0, 0.0, 1.0));
  if (s.top_p == 0.0f) s.top_k = 1, s.top_p = 1.0f;  // no mass at all: the likeliest
}

void read_place(Fields& fields, Question& question) {
  question.priority = static_cast<int>(fields.integer("priority", 0, -(1 << 20), 1 << 20));
  question.salt = fields.text("cache_salt");
}

void read_sampling(Fields& fields, const ModelCard& card, Ask& ask) {
  constexpr double penalty = 2.0, huge = 1e6;
  constexpr std::int64_t most_choices = infer::most_choices, most_top_k = 1 << 24;
  infer::Sampling& s = ask.question.sampling;
  const auto f32 = [&](const char* name, double fallback, double least, double most) {
    return static_cast<float>(fields.number(name, fallback, least, most));
  };
  read_warmth(fields, s);
  s.presence_penalty = f32("presence_penalty", 0.0, -penalty, penalty);
  s.frequency_penalty = f32("frequency_penalty", 0.0, -penalty, penalty);
  ask.n = s.n = static_cast<int>(fields.integer("n", 1, 1, most_choices));
  if (fields.has("seed"))
    s.seed = static_cast<std::uint64_t>(
        fields.integer("seed", 0, std::numeric_limits<std::int64_t>::min()));
  read_stops(fields, s);
  read_bias(fields, card, s);
  s.min_p = f32("min_p", 0.0, 0.0, 1.0);
  const auto top_k = static_cast<int>(fields.integer("top_k", 0, -1, most_top_k));
  if (top_k > 0) s.top_k = top_k;
  s.repetition_penalty = f32("repetition_penalty", 1.0, 1e-3, huge);
  s.min_tokens = fields.integer("min_tokens", 0, 0);
  s.ignore_eos = fields.flag("ignore_eos", false);
  s.include_stop = fields.flag("include_stop_str_in_output", false);
  read_place(fields, ask.question);
  if (s.n > 1 && s.temperature == 0.0f)
    invalid("Invalid 'n': at temperature 0 all answers would be the same one.", "n",
            "invalid_value");
  fields.ignore(
      {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"});
}

// Fit prompt and answer into the context.
void fit_context(Ask& ask, const ModelCard& card, bool limited, const std::string& prompt_field) {
  infer::Sampling& s = ask.question.sampling;
  for (const auto& prompt : ask.prompts) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length == 0)
      invalid(fmt::format("Invalid '{}': there is nothing to continue.", prompt_field),
              prompt_field, "empty_prompt");
    const std::int64_t room = card.positions - length;
    if (room < 1 || (limited && s.max_tokens > room))
      invalid(fmt::format("This model's maximum context length is {} tokens. However, you "
                          "requested {} tokens ({} in the {}, {} in the completion).",
                          card.positions, length + (limited ? s.max_tokens : 1), length,
                          prompt_field, limited ? s.max_tokens : 1),
              prompt_field, "context_length_exceeded");
    if (!limited)
      s.max_tokens = &prompt == &ask.prompts.front() ? room : std::min(s.max_tokens, room);
  }
  if (s.min_tokens > s.max_tokens)
    invalid(
        fmt::format("Invalid 'min_tokens': {} is more than the {} tokens that an answer may have.",
                    s.min_tokens, s.max_tokens),
        "min_tokens", "invalid_value");
}

}  // namespace rose::serve
