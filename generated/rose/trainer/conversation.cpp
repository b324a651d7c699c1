// Read conversations, and refuse what cannot be meant.

#include "rose/trainer/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::trainer {

namespace json = core::json;

namespace {

[[noreturn]] void refuse(const std::string& where, std::string what, std::string hint) {
  throw core::Error(core::Code::invalid_argument, std::move(what)).in(where).hint(std::move(hint));
}

// Look at one message.
constexpr std::array<std::string_view, 4> roles{"system", "user", "assistant", "tool"};

/// Whether there is something in a message: words, or calls of tools.
bool says_something(const json::object& message, const std::string& where, std::size_t number) {
  const json::value* content = core::find(message, "content");
  const json::value* calls = core::find(message, "tool_calls");
  if (content != nullptr && !content->is_null() && !content->is_string())
    refuse(where, fmt::format("the content of message {} is not text", number),
           "this program learns from text");
  const bool words = content != nullptr && content->is_string() &&
                     content->as_string().find_first_not_of(" \t\r\n") != json::string::npos;
  return words || (calls != nullptr && calls->is_array() && !calls->as_array().empty());
}

/// 1 for an answer to learn. `number` counts messages from 1, as people do.
std::uint8_t look_at(json::object& message, const std::string& where, std::size_t number) {
  const std::string role(
      core::get_string(message, "role", fmt::format("{}, message {}", where, number)));
  if (std::ranges::find(roles, role) == roles.end())
    refuse(where, fmt::format("message {} has the role \"{}\"", number, role),
           fmt::format("roles are {}, {}, {} and {}", roles[0], roles[1], roles[2], roles[3]));
  if (role == "system" && number != 1)
    refuse(where, fmt::format("message {} is a system message", number),
           "a system message comes first");
  const bool something = says_something(message, where, number);
  if (role != "assistant") return 0;
  if (!something)
    refuse(where, fmt::format("message {} is an answer without words", number),
           "a model that learns this learns to say nothing: remove the conversation");
  const double weight = core::get_double_or(message, "weight", 1.0, where);
  if (weight != 0.0 && weight != 1.0)
    refuse(where, fmt::format("message {} has a weight of {}", number, weight),
           "an answer is learnt (1) or not (0)");
  message.erase("weight");
  return weight == 1.0 ? 1 : 0;
}

}  // namespace

// Read one line, or a file of them.
Conversation conversation_of(const json::array& messages, std::string where, bool answered) {
  Conversation out{.messages = messages, .tools = {}, .learnt = {}, .where = std::move(where)};
  if (out.messages.empty()) refuse(out.where, "there are no messages", "write at least two");
  bool any = false;
  for (std::size_t i = 0; i < out.messages.size(); ++i) {
    const std::string place = fmt::format("{}, message {}", out.where, i + 1);
    core::as_object(out.messages[i], place);
    out.learnt.push_back(look_at(out.messages[i].as_object(), out.where, i + 1));
    any = any || out.messages[i].as_object().at("role").as_string() == "assistant";
  }
  if (!answered) return out;
  if (!any) refuse(out.where, "nobody answers", "a conversation needs a message of the assistant");
  const std::string last(out.messages.back().as_object().at("role").as_string());
  if (last != "assistant")
    refuse(out.where, fmt::format("the last message is from {}", last),
           "there is nothing to learn from a question without an answer: remove it");
  return out;
}

Conversation parse_conversation(std::string_view line, const std::string& where) {
  const json::value value = core::parse_json(line, where);
  const json::object& object = core::as_object(value, where);
  Conversation out = conversation_of(core::get_array(object, "messages", where), where, true);
  if (core::find(object, "tools") != nullptr) out.tools = core::get_array(object, "tools", where);
  return out;
}

std::vector<std::pair<std::string, std::string>> json_lines(const std::filesystem::path& file) {
  const std::string text = core::read_file(file);
  std::vector<std::pair<std::string, std::string>> out;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1, ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    out.emplace_back(line, fmt::format("{}:{}", file.string(), number));
  }
  if (out.empty())
    throw core::Error(core::Code::corrupt, "there is no line in it").in(file.string());
  return out;
}

}  // namespace rose::trainer
