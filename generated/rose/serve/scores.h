// Answer with log-probabilities.

#pragma once

#include "rose/serve/gathering.h"

namespace rose::serve {

struct ScoreAsk {
  std::string model, prompt_field = "prompt";
  std::vector<Question> questions;
  std::vector<std::size_t> from;  ///< of each question: the first token that is scored
  std::vector<std::vector<std::int32_t>> tokens;  ///< of each question: its prompt
  std::vector<std::int32_t> labels;               ///< not empty: so many questions are one item
  bool softmax = false;
};

ScoreAsk read_scores(const json::object& body, const ModelCard& card);  // throws ApiError

/// One request for scores on its way.
class Scores final : public Gathering {
 public:
  Scores(Kitchen kitchen, ScoreAsk ask, std::shared_ptr<Exchange> exchange, Headers headers);

 private:
  void take(std::size_t question, const infer::Event& event) override;
  json::object whole() override;
  json::object score(std::size_t question) const;
  json::array label_scores(std::size_t item) const;
  ScoreAsk ask_;                              // without its questions
  std::vector<std::vector<float>> logprobs_;  // [questions][tokens]
};

}  // namespace rose::serve
