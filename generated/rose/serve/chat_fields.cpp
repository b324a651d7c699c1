// Read a chat request.

#include <fmt/format.h>

#include <algorithm>

#include "rose/serve/ask.h"
#include "rose/serve/tool_prompt.h"

namespace rose::serve {
namespace {

// The shape of an answer.
Shape read_format(Fields& fields) {
  const json::object* format = fields.object("response_format");
  if (format == nullptr) return {};
  Fields inner(*format, "response_format");
  inner.require("type");
  const std::string type = inner.choice("type", "", {"text", "json_object", "json_schema"});
  if (type != "json_schema") {
    inner.finish();
    return {type == "json_object" ? Shape::Kind::json_object : Shape::Kind::free, ""};
  }
  inner.require("json_schema");
  Fields named(*inner.object("json_schema"), "response_format.json_schema");
  named.require("name");
  named.text("name");
  named.text("description");
  named.flag("strict", false);
  named.require("schema");
  const json::object* schema = named.object("schema");
  named.finish();
  inner.finish();
  return {Shape::Kind::json_schema, json::serialize(*schema)};
}

// What vLLM calls structured outputs.
Shape read_structured(Fields& fields) {
  const json::object* wanted = fields.object("structured_outputs");
  if (wanted == nullptr) return {};
  Fields inner(*wanted, "structured_outputs");
  Shape shape;
  if (const json::value* schema = inner.find("json"))
    shape = {Shape::Kind::json_schema,
             schema->is_string() ? std::string(schema->get_string()) : json::serialize(*schema)};
  if (inner.has("regex")) shape = {Shape::Kind::regex, inner.text("regex")};
  if (inner.has("grammar")) shape = {Shape::Kind::ebnf, inner.text("grammar")};
  inner.finish();
  if (wanted->size() != 1)
    invalid(
        "Invalid 'structured_outputs': exactly one of 'json', 'regex' and 'grammar' is expected.",
        "structured_outputs", "invalid_value");
  return shape;
}

// Whether and what to call.
void read_tool_choice(Fields& fields, const json::array& tools, Ask& ask) {
  const json::value* choice = fields.find("tool_choice");
  if (choice != nullptr && choice->is_object()) {
    Fields inner(choice->get_object(), "tool_choice");
    inner.choice("type", "", {"function"});
    inner.require("function");
    Fields function(*inner.object("function"), "tool_choice.function");
    function.require("name");
    const std::string name = function.text("name");
    function.finish();
    inner.finish();
    const bool known = std::ranges::any_of(tools, [&](const json::value& t) {
      return t.at("function").at("name").get_string() == name;
    });
    if (!known)
      invalid(fmt::format("Invalid value: the tool '{}' is not among 'tools'.", name),
              "tool_choice.function.name", "invalid_value");
    choose_tools(tools, "required", name, "response_format", ask);
  } else {
    choose_tools(
        tools,
        fields.choice("tool_choice", tools.empty() ? "none" : "auto", {"none", "auto", "required"}),
        "", "response_format", ask);
  }
}

}  // namespace

// Let, or make, the model call.
void choose_tools(const json::array& tools, std::string_view word, std::string_view name,
                  const std::string& format_field, Ask& ask) {
  const bool must = word == "required";
  ask.parser.tools = !tools.empty() && word != "none";
  if (must && tools.empty())
    invalid("Invalid 'tool_choice': there are no 'tools' to choose from.", "tool_choice",
            "invalid_value");
  if (!must) return;
  if (ask.question.shape.kind != Shape::Kind::free)
    invalid(fmt::format("Invalid 'tool_choice': an answer cannot be a call and have a '{}'.",
                        format_field),
            "tool_choice", "invalid_value");
  ask.parser.tools = ask.parser.bare = true;
  ask.question.shape = {Shape::Kind::json_schema, json::serialize(call_schema(tools, name))};
}

// The tools themselves.
void check_tool_name(const std::string& name, const std::string& path) {
  constexpr std::size_t longest = 64;
  const bool plain = std::ranges::all_of(
      name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; });
  if (name.empty() || name.size() > longest || !plain)
    invalid(
        fmt::format("Invalid '{}': letters, digits, '_' and '-' are expected, 64 at most.", path),
        path, "invalid_value");
}

json::array read_tools(Fields& fields, Ask& ask) {
  constexpr std::size_t most_tools = 128;
  json::array out;
  if (const json::array* tools = fields.array("tools", 1, most_tools)) {
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const std::string at = fmt::format("tools[{}]", i);
      if (!(*tools)[i].is_object()) wrong_type(at, "an object", (*tools)[i]);
      Fields tool((*tools)[i].get_object(), at);
      tool.require("type");
      tool.choice("type", "", {"function"});
      tool.require("function");
      Fields function(*tool.object("function"), at + ".function");
      function.require("name");
      check_tool_name(function.text("name"), at + ".function.name");
      function.text("description");
      function.object("parameters");
      function.flag("strict", false);
      function.finish();
      tool.finish();
      out.push_back((*tools)[i]);
    }
  }
  ask.parser.parallel = fields.flag("parallel_tool_calls", true);
  read_tool_choice(fields, out, ask);
  return out;
}

// The whole request.
Ask read_chat(const json::object& body, const ModelCard& card) {
  Fields fields(body);
  Ask ask;
  ask.style = Ask::Style::chat;
  ask.prompt_field = "messages";
  read_model(fields, card, ask);
  fields.require("messages");
  read_sampling(fields, card, ask);
  read_stream(fields, ask);
  infer::Sampling& s = ask.question.sampling;
  constexpr std::int64_t most_top = 20;
  ask.logprobs = fields.flag("logprobs", false);
  const std::int64_t top = fields.integer("top_logprobs", 0, 0, most_top);
  if (top > 0 && !ask.logprobs)
    invalid("Invalid 'top_logprobs': 'logprobs' must be true to ask for them.", "top_logprobs",
            "invalid_value");
  if (ask.logprobs) s.logprobs = static_cast<int>(top);
  ask.question.shape = read_format(fields);
  if (fields.has("structured_outputs")) ask.question.shape = read_structured(fields);
  const json::array tools = read_tools(fields, ask);
  ask.parser.reasoning = !ask.parser.bare && ask.question.shape.kind == Shape::Kind::free;
  const bool limited = fields.has("max_completion_tokens") || fields.has("max_tokens");
  s.max_tokens = fields.integer("max_completion_tokens", fields.integer("max_tokens", 1, 1), 1);
  for (const char* name :
       {"audio", "functions", "function_call", "prediction", "web_search_options"})
    if (fields.has(name))
      invalid(fmt::format("Unsupported parameter: '{}'.", name), name, "unsupported_parameter");
  fields.ignore({"reasoning_effort", "verbosity", "modalities"});
  const bool only_last = ask.question.shape.kind != Shape::Kind::free && s.min_tokens > 0;
  if (only_last)
    invalid("Invalid 'min_tokens': a shaped answer ends when its shape does.", "min_tokens",
            "invalid_value");
  const auto& switches = tools.empty() || ask.parser.tools ? tools : json::array();
  ask.prompts.push_back(card.tokenizer.encode(chat_prompt(fields, card, switches), true));
  fields.finish();
  fit_context(ask, card, limited, "messages");
  return ask;
}

}  // namespace rose::serve
