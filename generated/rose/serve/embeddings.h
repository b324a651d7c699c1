// Answer with vectors.

#pragma once

#include "rose/serve/gathering.h"

namespace rose::serve {

struct EmbeddingAsk {
  std::string model;
  std::vector<Question> questions;
  std::int64_t dimensions = 0;  ///< 0: not said
  bool base64 = false;
};

EmbeddingAsk read_embeddings(const json::object& body, const ModelCard& card);  // throws ApiError

/// Little-endian fp32, as RFC 4648 writes bytes as text.
std::string base64_of(std::span<const float> values);

/// One request for vectors on its way.
class Embeddings final : public Gathering {
 public:
  Embeddings(Kitchen kitchen, EmbeddingAsk ask, std::shared_ptr<Exchange> exchange,
             Headers headers);

 private:
  void take(std::size_t question, const infer::Event& event) override;
  json::object whole() override;
  EmbeddingAsk ask_;                         // without its questions
  std::vector<std::vector<float>> vectors_;  // [questions][C]
};

}  // namespace rose::serve
