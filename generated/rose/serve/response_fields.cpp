// Read a response's request.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "rose/serve/response_form.h"

namespace rose::serve {
namespace {

// Refuse what would need a memory.
void refuse_memory(Fields& fields) {
  const auto refuse = [&](const char* name, const char* why) {
    if (fields.has(name))
      invalid(fmt::format("Unsupported parameter: '{}'. {}", name, why), name,
              "unsupported_parameter");
  };
  constexpr const char* stored =
      "Nothing is stored on this server: send the whole conversation as 'input'.";
  refuse("previous_response_id", stored);
  refuse("conversation", stored);
  refuse("prompt", stored);
  refuse("context_management", "The conversation is used as it is sent.");
  refuse("max_tool_calls", "Functions are called by the client.");
  if (fields.flag("store", false))
    invalid("Unsupported value: 'store' must be false, since nothing is stored on this server.",
            "store", "unsupported_value");
  if (fields.flag("background", false))
    invalid(
        "Unsupported value: 'background' must be false, since nothing is stored on this server.",
        "background", "unsupported_value");
  if (fields.choice("truncation", "disabled", {"auto", "disabled"}) == "auto")
    invalid("Unsupported value: 'truncation' must be 'disabled': no item is dropped unasked.",
            "truncation", "unsupported_value");
}

// Tools, written flat.
json::array read_flat_tools(Fields& fields) {
  constexpr std::size_t most_tools = 128;
  json::array out;
  const json::array* tools = fields.array("tools", 0, most_tools);
  for (std::size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    if (!(*tools)[i].is_object()) wrong_type(at, "an object", (*tools)[i]);
    Fields tool((*tools)[i].get_object(), at);
    tool.require("type");
    tool.choice("type", "", {"function"});
    tool.require("name");
    check_tool_name(tool.text("name"), tool.path("name"));
    json::object function{{"name", tool.text("name")}};
    if (tool.has("description")) function["description"] = tool.text("description");
    if (const json::object* parameters = tool.object("parameters"))
      function["parameters"] = *parameters;
    tool.flag("strict", false);
    tool.finish();
    out.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

void read_choice(Fields& fields, const json::array& tools, Ask& ask) {
  const json::value* choice = fields.find("tool_choice");
  if (choice == nullptr || !choice->is_object())
    return choose_tools(
        tools,
        fields.choice("tool_choice", tools.empty() ? "none" : "auto", {"none", "auto", "required"}),
        "", "text.format", ask);
  Fields inner(choice->get_object(), "tool_choice");
  inner.choice("type", "", {"function"});
  inner.require("name");
  const std::string name = inner.text("name");
  inner.finish();
  const bool known = std::ranges::any_of(tools, [&](const json::value& t) {
    return t.at("function").at("name").get_string() == name;
  });
  if (!known)
    invalid(fmt::format("Invalid value: the tool '{}' is not among 'tools'.", name),
            "tool_choice.name", "invalid_value");
  choose_tools(tools, "required", name, "text.format", ask);
}

// The shape of the text.
Shape read_text(Fields& fields) {
  const json::object* text = fields.object("text");
  if (text == nullptr) return {};
  Fields inner(*text, "text");
  inner.choice("verbosity", "medium", {"low", "medium", "high"});
  const json::object* format = inner.object("format");
  inner.finish();
  if (format == nullptr) return {};
  Fields named(*format, "text.format");
  named.require("type");
  const std::string type = named.choice("type", "", {"text", "json_object", "json_schema"});
  Shape shape;
  if (type == "json_object") shape.kind = Shape::Kind::json_object;
  if (type == "json_schema") {
    named.require("name");
    named.text("name");
    named.text("description");
    named.flag("strict", false);
    named.require("schema");
    shape = {Shape::Kind::json_schema, json::serialize(*named.object("schema"))};
  }
  named.finish();
  return shape;
}

// Log-probabilities, when they are asked for.
bool read_logprobs(Fields& fields, const json::array& tools, infer::Sampling& s) {
  constexpr std::int64_t most_top = 20;
  bool wanted = false;
  constexpr std::size_t most_included = 16;
  if (const json::array* include = fields.array("include", 0, most_included))
    for (std::size_t i = 0; i < include->size(); ++i) {
      const std::string at = fmt::format("include[{}]", i);
      if (!(*include)[i].is_string()) wrong_type(at, "a string", (*include)[i]);
      if ((*include)[i].get_string() != "message.output_text.logprobs")
        invalid(fmt::format("Unsupported value: '{}'. This server can include "
                            "'message.output_text.logprobs'.",
                            std::string_view((*include)[i].get_string())),
                at, "unsupported_value");
      wanted = true;
    }
  const auto top = static_cast<int>(fields.integer("top_logprobs", 0, 0, most_top));
  wanted = wanted || top > 0;
  if (wanted && !tools.empty())
    invalid("Log-probabilities are of a text; they cannot be asked for together with 'tools'.",
            top > 0 ? "top_logprobs" : "include", "unsupported_value");
  if (wanted) s.logprobs = top;
  return wanted;
}

}  // namespace

// The whole request.
Ask read_response(const json::object& body, const ModelCard& card) {
  Fields fields(body);
  Ask ask;
  ask.style = Ask::Style::chat;
  ask.prompt_field = "input", ask.format_field = "text.format";
  read_model(fields, card, ask);
  fields.require("input");
  refuse_memory(fields);
  infer::Sampling& s = ask.question.sampling;
  read_warmth(fields, s);
  read_place(fields, ask.question);
  read_stream(fields, ask);
  ask.include_usage = ask.usage_each = false;  // the last event has it anyway
  ask.question.shape = read_text(fields);
  const json::array tools = read_flat_tools(fields);
  ask.parser.parallel = fields.flag("parallel_tool_calls", true);
  read_choice(fields, tools, ask);
  ask.parser.reasoning = !ask.parser.bare && ask.question.shape.kind == Shape::Kind::free;
  ask.logprobs = read_logprobs(fields, tools, s);
  const bool limited = fields.has("max_output_tokens");
  s.max_tokens = fields.integer("max_output_tokens", 1, 1);
  if (const json::object* reasoning = fields.object("reasoning")) {
    Fields inner(*reasoning, "reasoning");
    inner.choice("effort", "medium", {"none", "minimal", "low", "medium", "high", "xhigh"});
    for (const char* name : {"summary", "generate_summary"})
      if (inner.has(name))
        invalid("Thoughts are given as they are, and not summarised.", inner.path(name),
                "unsupported_value");
    inner.finish();
  }
  fields.ignore({"metadata", "user", "safety_identifier", "service_tier", "prompt_cache_key",
                 "prompt_cache_retention"});
  json::array messages = read_items(fields);
  if (const std::string first = fields.text("instructions"); !first.empty()) {
    if (messages[0].get_object().at("role").get_string() == "system") {
      json::object& system = messages[0].get_object();
      system["content"] = first + "\n\n" + std::string(system.at("content").get_string());
    } else {
      messages.insert(messages.begin(), json::object{{"role", "system"}, {"content", first}});
    }
  }
  ask.prompts.push_back(
      card.tokenizer.encode(render_chat(fields, card, std::move(messages),
                                        ask.parser.tools ? tools : json::array(), "input"),
                            true));
  fields.finish();
  fit_context(ask, card, limited, "input");
  json::object echo{{"store", false},
                    {"background", false},
                    {"previous_response_id", nullptr},
                    {"truncation", "disabled"},
                    {"instructions", nullptr},
                    {"max_output_tokens", nullptr},
                    {"metadata", json::object()},
                    {"parallel_tool_calls", true},
                    {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                    {"temperature", s.temperature},
                    {"text", {{"format", {{"type", "text"}}}}},
                    {"tool_choice", tools.empty() ? "none" : "auto"},
                    {"tools", json::array()},
                    {"top_logprobs", ask.logprobs ? s.logprobs : 0},
                    {"top_p", 1.0},
                    {"user", nullptr}};
  for (const char* name : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls",
                           "temperature", "text", "tool_choice", "tools", "top_p", "user"})
    if (const json::value* said = core::find(body, name)) echo[name] = *said;
  if (const json::object* reasoning = fields.object("reasoning"))
    if (const json::value* effort = core::find(*reasoning, "effort"))
      echo["reasoning"].get_object()["effort"] = *effort;
  for (json::value& tool : echo["tools"].get_array())  // a client's type has these two
    for (const char* name : {"parameters", "strict"})
      if (!tool.get_object().contains(name)) tool.get_object()[name] = nullptr;
  ask.form = std::make_shared<ResponseForm>(std::move(echo), ask.logprobs);
  return ask;
}

}  // namespace rose::serve
