// Write answers as the API does.

#pragma once

#include <cstdint>
#include <span>
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
  std::vector<MessageDelta> parts{};  ///< the message again, in order, for those who ask for it
  std::vector<TokenLogprob> logprobs{};
  std::string finish{};
  bool empty() const { return message.empty() && logprobs.empty() && finish.empty(); }
  void add(ChoiceDelta later);
  void add_part(MessageDelta part);  ///< to `parts` and to the message
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

/// A way to write an answer of one choice that is not the way of chat or completions. It is used by one thread at a time.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;
  virtual const char* prefix() const = 0;  ///< of the answer's id
  virtual void start(const AnswerHead& head) = 0;
  // What a stream says: first, for each delta, and last. No way back from the last.
  virtual std::string opening() = 0;
  virtual std::string add(const ChoiceDelta& delta) = 0;
  virtual std::string closing(const UsageSum& usage) = 0;
  virtual std::string failure(const ApiError& error) = 0;
  virtual json::object whole(const UsageSum& usage) = 0;  ///< after the last delta
};

json::object role_chunk(const AnswerHead& head, int index);
/// `sum` already contains the delta.
json::object delta_chunk(const AnswerHead& head, const ChoiceDelta& delta, const ChoiceSum& sum);
json::object usage_chunk(const AnswerHead& head, const UsageSum& usage);
json::object whole_answer(const AnswerHead& head, const std::vector<const ChoiceSum*>& choices,
                          const UsageSum& usage);

/// Tokens with their log-probabilities and alternatives, as chat writes them.
json::array logprob_entries(const text::Tokenizer& tokenizer,
                            std::span<const TokenLogprob> logprobs);
/// A token's text, or its bytes as "\xf0\x9f" when they are no whole characters.
std::string token_text(const text::Tokenizer& tokenizer, std::int32_t token);

}  // namespace rose::serve
