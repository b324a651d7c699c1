// Write tools as text.

#include "rose/serve/tool_prompt.h"

#include <string>

namespace rose::serve {

namespace json = core::json;

// Schemas, calls and results as text.
json::array with_tools_as_text(const json::array& messages, const json::array& tools) {
  json::array out;
  std::string offer;
  if (!tools.empty()) {
    offer =
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
    for (const json::value& tool : tools) offer += "\n" + json::serialize(tool);
    offer +=
        "\n</tools>\n\nFor each function call, return a json object with function name and "
        "arguments within "
        "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
        "\"arguments\": "
        "<args-json-object>}\n</tool_call>";
  }
  for (const json::value& value : messages) {
    json::object message = value.get_object();
    const std::string role(message.at("role").get_string());
    const json::value* content = message.if_contains("content");
    std::string text =
        content != nullptr && content->is_string() ? std::string(content->get_string()) : "";
    if (role == "system" && !offer.empty()) text += "\n\n" + std::exchange(offer, {});
    if (role == "tool") {
      message["role"] = "user";
      text.insert(0, "<tool_response>\n").append("\n</tool_response>");
    }
    if (const json::value* calls = message.if_contains("tool_calls"))
      for (const json::value& call : calls->get_array())
        text += (text.empty() ? "" : "\n") + std::string("<tool_call>\n") +
                json::serialize(call.at("function")) + "\n</tool_call>";
    message.erase("tool_calls");
    message["content"] = text;
    out.emplace_back(std::move(message));
  }
  if (!offer.empty()) out.insert(out.begin(), json::object{{"role", "system"}, {"content", offer}});
  return out;
}

// The language of a call.
json::object call_schema(const json::array& tools, std::string_view name) {
  json::array alternatives;
  for (const json::value& tool : tools) {
    const json::object& function = tool.at("function").get_object();
    if (!name.empty() && function.at("name").get_string() != name) continue;
    const json::value* parameters = function.if_contains("parameters");
    const bool given =
        parameters != nullptr && parameters->is_object() && !parameters->get_object().empty();
    alternatives.push_back(
        {{"type", "object"},
         {"properties",
          {{"name", {{"const", function.at("name")}}},
           {"arguments", given ? *parameters : json::value{{"type", "object"}}}}},
         {"required", {"name", "arguments"}},
         {"additionalProperties", false}});
  }
  if (alternatives.size() == 1) return alternatives[0].get_object();
  return {{"anyOf", std::move(alternatives)}};
}

}  // namespace rose::serve
