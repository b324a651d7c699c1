// Write a conversation as a model was trained to read it.

#pragma once

#include <ctime>
#include <memory>
#include <string>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "rose/text/template_limits.h"

namespace rose::text {

// Parse a chat template once and render it for many conversations.
class ChatTemplate {
 public:
  /// Throws core::Error, with line and column, when `source` is not a template.
  explicit ChatTemplate(std::string source);

  /// Renders for the variables in `context`: messages, tools, add_generation_prompt, bos_token, ...
  /// Throws core::Error, with line and column: what the template raised, or what it did wrong.
  /// Safe to call from several threads. `now` is what strftime_now() formats.
  std::string render(const boost::json::object& context, const Limits& limits = {},
                     std::time_t now = std::time(nullptr)) const;

  const std::string& source() const;  ///< as given

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

// Say what a template is told beside the messages.
struct ChatOptions {
  bool add_generation_prompt = true;  ///< end with the opening of the assistant's turn
  std::string bos_token, eos_token;
  boost::json::array tools;   ///< as in the OpenAI API: {"type": "function", "function": {...}}
  boost::json::object extra;  ///< more variables, such as {"enable_thinking": false}
};

boost::json::object chat_context(const boost::json::array& messages, const ChatOptions& options);

}  // namespace rose::text
