// Answer with vectors.

#include "rose/serve/embeddings.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <utility>

namespace rose::serve {

// Read the request.
EmbeddingAsk read_embeddings(const json::object& body, const ModelCard& card) {
  constexpr std::size_t most_texts = 2048;
  Fields fields(body);
  Ask model;
  read_model(fields, card, model);
  EmbeddingAsk ask;
  ask.model = model.model;
  infer::Pooling pooling;
  pooling.normalize = fields.flag("normalize", true);
  if (fields.choice("pooling", "last", {"last", "mean"}) == "mean")
    pooling.kind = infer::Pooling::Kind::mean;
  for (auto& prompt : read_prompts(fields, card, "input", most_texts)) {
    const auto length = static_cast<std::int64_t>(prompt.size());
    if (length == 0)
      invalid("Invalid 'input': input cannot be an empty string.", "input", "empty_prompt");
    if (length >= card.positions)
      invalid(fmt::format("This model's maximum context length is {} tokens, however you "
                          "requested {} tokens. Please reduce your input.",
                          card.positions, length),
              "input", "context_length_exceeded");
    Question question = model.question;
    question.prompt = std::move(prompt);
    question.pooling = pooling;
    ask.questions.push_back(std::move(question));
  }
  ask.base64 = fields.choice("encoding_format", "float", {"float", "base64"}) == "base64";
  ask.dimensions = fields.integer("dimensions", 0, 1);
  fields.ignore({"user"});
  fields.finish();
  return ask;
}

std::string base64_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  std::string out((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and the zero that is written behind
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(bytes.data()),
                                static_cast<int>(bytes.size()));
  out.resize(static_cast<std::size_t>(n));
  return out;
}

// Keep the vectors, write them.
Embeddings::Embeddings(Kitchen kitchen, EmbeddingAsk ask, std::shared_ptr<Exchange> exchange,
                       Headers headers)
    : Gathering(std::move(kitchen), std::move(ask.questions), "input", std::move(exchange),
                std::move(headers)),
      ask_(std::move(ask)) {}

void Embeddings::take(std::size_t question, const infer::Event& event) {
  if (!event.finish) return;
  if (question >= vectors_.size()) vectors_.resize(question + 1);
  vectors_[question].assign(event.embedding.begin(), event.embedding.end());
  const auto length = static_cast<std::int64_t>(vectors_[question].size());
  if (ask_.dimensions != 0 && ask_.dimensions != length)
    invalid(
        fmt::format("This model has embeddings of {} dimensions, and no shortened ones.", length),
        "dimensions", "invalid_value");
}

json::object Embeddings::whole() {
  json::array data;
  for (std::size_t i = 0; i < vectors_.size(); ++i) {
    json::value vector =
        ask_.base64 ? json::value(base64_of(vectors_[i])) : json::value_from(vectors_[i]);
    data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", std::move(vector)}});
  }
  return {{"object", "list"},
          {"data", std::move(data)},
          {"model", ask_.model},
          {"usage", {{"prompt_tokens", usage().prompt}, {"total_tokens", usage().prompt}}}};
}

}  // namespace rose::serve
