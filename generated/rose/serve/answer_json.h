// Write answers as the API does.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rose/core/json.h"
#include "rose/infer/request.h"
#include "rose/serve/ask.h"
#include "rose/text/tokenizer.h"

namespace rose::serve {

namespace json = core::json;

struct TokenLogprob {
  std::int32_t token = -1;
  float logprob = 0.0f;
  std::vector<infer::Alternative> top;
};

struct ChoiceDelta {
  int index = 0;
  MessageDelta message{};
  std::vector<TokenLogprob> logprobs{};
  std::string finish{};
  bool empty() const { return message.empty() && logprobs.empty() && finish.empty(); }
  void add(ChoiceDelta later);
};

/// All deltas of a choice.
struct ChoiceSum {
  int index = 0;
  std::string content, reasoning, finish;
  std::vector<MessageDelta::Call> calls;
  std::vector<TokenLogprob> logprobs;
  std::size_t logged = 0;  ///< characters of the tokens whose log-probabilities have been written
  void add(const ChoiceDelta& delta);
  double mean_logprob() const;
};

struct UsageSum {
  std::int64_t prompt = 0, cached = 0, completion = 0;
};

struct AnswerHead {
  Ask::Style style = Ask::Style::chat;
  std::string id, model;
  std::int64_t created = 0;
  const text::Tokenizer* tokenizer = nullptr;
  bool logprobs = false, null_usage = false;
};

json::object role_chunk(const AnswerHead& head, int index);
/// `sum` already contains the delta.
json::object delta_chunk(const AnswerHead& head, const ChoiceDelta& delta, const ChoiceSum& sum);
json::object usage_chunk(const AnswerHead& head, const UsageSum& usage);
json::object whole_answer(const AnswerHead& head, const std::vector<const ChoiceSum*>& choices,
                          const UsageSum& usage);

/// A token's text, or its bytes as "\xf0\x9f" when they are no whole characters.
std::string token_text(const text::Tokenizer& tokenizer, std::int32_t token);

}  // namespace rose::serve
