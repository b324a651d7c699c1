// Turn conversations into tokens and say which are learnt.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rose/text/template.h"
#include "rose/text/tokenizer.h"
#include "rose/trainer/conversation.h"

namespace rose::trainer {

/// What the model reads, and which of it are answers.
struct ChatSequence {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> learnt;  ///< of each token: 1 when it is part of an answer to learn
  std::string where;                 ///< of the conversation

  std::int64_t cells() const { return static_cast<std::int64_t>(ids.size()) - 1; }
  std::int64_t learnt_tokens() const;
};

/// A template, and the tokenizer that reads what it writes.
class ChatEncoder {
 public:
  /// Throws core::Error for a template that is none.
  ChatEncoder(text::Tokenizer tokenizer, std::string source, std::string bos, std::string eos);

  /// As few sequences as the template allows; answers without weight alone give none. Throws core::Error
  /// (invalid_argument) with the conversation's place: what the template refuses, content that holds a special token, an
  /// answer that the template does not write behind the prompt.
  std::vector<ChatSequence> encode(const Conversation& conversation) const;
  /// What the engine feeds the model for the next answer.
  std::vector<std::int32_t> prompt(const core::json::array& messages,
                                   const core::json::array& tools = {}) const;
  /// The special token that ends an answer, if the template writes one.
  std::optional<std::int32_t> end_of_answer() const;

  const text::Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  std::string render(const core::json::array& messages, const core::json::array& tools,
                     bool open) const;
  void check_content(const Conversation& conversation) const;
  void append(std::string_view text, bool learnt, ChatSequence& out) const;

  text::Tokenizer tokenizer_;
  text::ChatTemplate template_;
  std::string bos_, eos_;
};

/// "chatml" and "plain" by name, else the text of a file. Throws core::Error (not_found).
std::string chat_template_source(const std::string& name_or_file);

}  // namespace rose::trainer
