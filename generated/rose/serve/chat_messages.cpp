// Read a conversation.

#include <fmt/format.h>

#include "rose/serve/ask.h"
#include "rose/serve/tool_prompt.h"

namespace rose::serve {
namespace {

// Content is a text, or parts that are texts.
json::value read_content(Fields& message, bool required) {
  const json::value* content = message.find("content");
  const std::string path = message.path("content");
  if (content == nullptr) {
    if (required)
      invalid(fmt::format("Missing required parameter: '{}'.", path), path,
              "missing_required_parameter");
    return nullptr;
  }
  if (content->is_string()) return *content;
  if (!content->is_array()) wrong_type(path, "a string or an array of content parts", *content);
  std::string joined;
  const json::array& parts = content->get_array();
  if (parts.empty())
    invalid(
        fmt::format("Invalid '{}': empty array. Expected an array with minimum length 1.", path),
        path, "empty_array");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!parts[i].is_object()) wrong_type(at, "an object", parts[i]);
    Fields part(parts[i].get_object(), at);
    part.require("type");
    const std::string type = part.text("type");
    if (type == "image_url" || type == "input_audio" || type == "file")
      invalid(fmt::format("Invalid content type '{}': this model reads text only.", type),
              part.path("type"), "unsupported_content");
    part.choice("type", "", {"text", "refusal"});
    part.require(type);
    joined += part.text(type);
    part.ignore({"prompt_cache_breakpoint", "cache_control"});
    part.finish();
  }
  return json::value(joined);
}

// Calls that the assistant has made.
json::array read_calls(Fields& message) {
  constexpr std::size_t most_calls = 128;
  json::array out;
  const json::array* calls = message.array("tool_calls", 1, most_calls);
  if (calls == nullptr) return out;
  for (std::size_t i = 0; i < calls->size(); ++i) {
    const std::string at = fmt::format("{}[{}]", message.path("tool_calls"), i);
    if (!(*calls)[i].is_object()) wrong_type(at, "an object", (*calls)[i]);
    Fields call((*calls)[i].get_object(), at);
    call.choice("type", "function", {"function"});
    call.require("function");
    Fields function(*call.object("function"), call.path("function"));
    function.require("name");
    function.require("arguments");
    const std::string arguments = function.text("arguments");
    json::value parsed;
    try {
      parsed = core::parse_json(arguments, "arguments");
    } catch (const core::Error&) {
      parsed = arguments;  // the model wrote it so, and shall see it so
    }
    out.push_back(
        {{"id", call.text("id")},
         {"type", "function"},
         {"function", {{"name", function.text("name")}, {"arguments", std::move(parsed)}}}});
    call.ignore({"index"});
    function.finish();
    call.finish();
  }
  return out;
}

// One message.
json::object read_message(const json::value& value, const std::string& path) {
  if (!value.is_object()) wrong_type(path, "an object", value);
  Fields message(value.get_object(), path);
  message.require("role");
  const std::string role =
      message.choice("role", "", {"system", "developer", "user", "assistant", "tool"});
  json::object out{{"role", role == "developer" ? "system" : role}};
  json::array calls;
  if (role == "assistant") {
    calls = read_calls(message);
    if (message.has("reasoning_content"))
      out["reasoning_content"] = message.text("reasoning_content");
    message.ignore({"refusal", "audio", "function_call", "annotations", "reasoning"});
  }
  out["content"] = read_content(message, role != "assistant" || calls.empty());
  if (!calls.empty()) out["tool_calls"] = std::move(calls);
  if (role == "tool") {
    message.require("tool_call_id");
    out["tool_call_id"] = message.text("tool_call_id");
  }
  if (message.has("name")) out["name"] = message.text("name");
  message.finish();
  return out;
}

}  // namespace

// Render the conversation.
std::string chat_prompt(Fields& fields, const ModelCard& card, const json::array& tools,
                        bool generation_prompt) {
  fields.require("messages");
  constexpr std::size_t most_messages = 4096;
  const json::array& messages = *fields.array("messages", 1, most_messages);
  json::array read;
  for (std::size_t i = 0; i < messages.size(); ++i)
    read.emplace_back(read_message(messages[i], fmt::format("messages[{}]", i)));
  return render_chat(fields, card, std::move(read), tools, "messages", generation_prompt);
}

std::string render_chat(Fields& fields, const ModelCard& card, json::array read,
                        const json::array& tools, const std::string& field,
                        bool generation_prompt) {
  if (!card.chat)
    invalid(
        "This model has no chat template: it continues texts (/v1/completions), it was not taught "
        "to answer.",
        "model", "no_chat_template");
  text::ChatOptions options;
  options.add_generation_prompt = generation_prompt;
  options.bos_token = card.bos_token, options.eos_token = card.eos_token;
  if (card.chat->source().find("tools") == std::string::npos) {
    read = with_tools_as_text(read, tools);
  } else {
    options.tools = tools;
  }
  if (const json::object* more = fields.object("chat_template_kwargs")) options.extra = *more;
  if (fields.has("enable_thinking"))
    options.extra["enable_thinking"] = fields.flag("enable_thinking", true);
  try {
    return card.chat->render(text::chat_context(read, options));
  } catch (const core::Error& error) {
    invalid(fmt::format("The chat template cannot write this conversation: {}", error.message()),
            field, "template_error");
  }
}

}  // namespace rose::serve
