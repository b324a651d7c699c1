// Read items as messages.

#include <fmt/format.h>

#include <algorithm>

#include "rose/serve/response_form.h"

namespace rose::serve {
namespace {

// Content is a text, or parts that are texts.
std::string read_parts(Fields& item, std::string_view field) {
  const std::string path = item.path(field);
  item.require(field);
  const json::value& content = *item.find(field);
  if (content.is_string()) return std::string(content.get_string());
  if (!content.is_array()) wrong_type(path, "a string or an array of content parts", content);
  std::string joined;
  const json::array& parts = content.get_array();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!parts[i].is_object()) wrong_type(at, "an object", parts[i]);
    Fields part(parts[i].get_object(), at);
    part.require("type");
    const std::string type = part.text("type");
    if (type == "input_image" || type == "input_file" || type == "input_audio")
      invalid(fmt::format("Invalid content type '{}': this model reads text only.", type),
              part.path("type"), "unsupported_content");
    part.choice("type", "",
                {"input_text", "output_text", "text", "refusal", "reasoning_text", "summary_text"});
    const char* holds = type == "refusal" ? "refusal" : "text";
    part.require(holds);
    joined += part.text(holds);
    part.ignore({"annotations", "logprobs"});
    part.finish();
  }
  return joined;
}

// The assistant's turn that is being put together: the last message, if it is the assistant's.
json::object& turn(json::array& messages) {
  const bool going =
      !messages.empty() && messages.back().get_object().at("role").get_string() == "assistant";
  if (!going) messages.push_back({{"role", "assistant"}, {"content", ""}});
  return messages.back().get_object();
}

void read_message(Fields& item, json::array& messages) {
  item.require("role");
  const std::string role = item.choice("role", "", {"user", "assistant", "system", "developer"});
  std::string text = read_parts(item, "content");
  item.ignore({"type", "id", "status", "phase"});
  item.finish();
  if (role != "assistant") {
    messages.push_back({{"role", role == "developer" ? "system" : role}, {"content", text}});
    return;
  }
  json::object& into = turn(messages);
  if (into.contains("tool_calls") || !into.at("content").get_string().empty()) {
    messages.push_back({{"role", "assistant"}, {"content", text}});
  } else {
    into["content"] = text;
  }
}

// A call, and its result.
void read_call(Fields& item, json::array& messages, std::vector<std::string>& calls) {
  for (const char* field : {"call_id", "name", "arguments"}) item.require(field);
  const std::string arguments = item.text("arguments");
  json::value parsed;
  try {
    parsed = core::parse_json(arguments, "arguments");
  } catch (const core::Error&) {
    parsed = arguments;  // the model wrote it so, and shall see it so
  }
  json::object& into = turn(messages);
  if (!into.contains("tool_calls")) into["tool_calls"] = json::array();
  calls.push_back(item.text("call_id"));
  into["tool_calls"].get_array().push_back(
      {{"id", calls.back()},
       {"type", "function"},
       {"function", {{"name", item.text("name")}, {"arguments", std::move(parsed)}}}});
  item.ignore({"type", "id", "status"});
  item.finish();
}

void read_result(Fields& item, json::array& messages, const std::vector<std::string>& calls) {
  item.require("call_id");
  const std::string call = item.text("call_id");
  if (std::ranges::find(calls, call) == calls.end())
    invalid(fmt::format("No tool call found for function call output with call_id {}.", call),
            item.path("call_id"), "invalid_value");
  messages.push_back(
      {{"role", "tool"}, {"content", read_parts(item, "output")}, {"tool_call_id", call}});
  item.ignore({"type", "id", "status"});
  item.finish();
}

// Thoughts of an earlier turn.
void read_thought(Fields& item, json::array& messages) {
  if (item.has("encrypted_content"))
    invalid("Encrypted thoughts cannot be read here.", item.path("encrypted_content"),
            "unsupported_value");
  const std::string thought = read_parts(item, item.has("content") ? "content" : "summary");
  item.ignore({"type", "id", "status", "summary", "content"});
  item.finish();
  json::object& into = turn(messages);
  if (!into.at("content").get_string().empty() || into.contains("tool_calls"))
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  messages.back().get_object()["reasoning_content"] = thought;
}

}  // namespace

// All items.
json::array read_items(Fields& fields) {
  fields.require("input");
  const json::value& input = *fields.find("input");
  if (input.is_string()) return {{{"role", "user"}, {"content", input}}};
  if (!input.is_array()) wrong_type("input", "a string or an array of input items", input);
  constexpr std::size_t most_items = 4096;
  const json::array& items = *fields.array("input", 1, most_items);
  json::array messages;
  std::vector<std::string> calls;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string at = fmt::format("input[{}]", i);
    if (!items[i].is_object()) wrong_type(at, "an object", items[i]);
    Fields item(items[i].get_object(), at);
    if (item.text("type") == "item_reference")
      invalid("Nothing is stored on this server: send the item itself.", item.path("type"),
              "unsupported_value");
    const std::string type = item.choice(
        "type", "message", {"message", "function_call", "function_call_output", "reasoning"});
    if (type == "message")
      read_message(item, messages);
    else if (type == "function_call")
      read_call(item, messages, calls);
    else if (type == "function_call_output")
      read_result(item, messages, calls);
    else
      read_thought(item, messages);
  }
  return messages;
}

}  // namespace rose::serve
