// Parse, render, and say where it went wrong.

#include "rose/text/template.h"

#include <algorithm>
#include <utility>

#include "rose/text/template_ast.h"
#include "rose/text/template_interpreter.h"
#include "rose/text/template_lexer.h"
#include "rose/text/template_unicode.h"

namespace rose::text {

struct ChatTemplate::Program {
  std::string source;
  std::string text;  // the source with its newlines normalized: what positions refer to
  jinja::Block block;
};

namespace {

// Turn a failure into an error that shows the place.
core::Error located(const jinja::LocatedFailure& failure, std::string_view text) {
  const std::size_t at = std::min<std::size_t>(failure.at, text.size());
  const std::size_t line_start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;  // npos + 1 is 0
  const auto line =
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
  const auto column = jinja::count_code_points(text.substr(line_start, at - line_start)) + 1;
  std::string_view shown = text.substr(at);
  shown = shown.substr(0, std::min(shown.find('\n'), jinja::byte_offset(shown, 40)));
  std::string place = "chat template:" + std::to_string(line) + ":" + std::to_string(column);
  if (!shown.empty()) place += " at `" + std::string(shown) + "`";
  return core::Error(failure.failure.code, failure.failure.message)
      .in(std::move(place))
      .hint(failure.failure.hint);
}

}  // namespace

// Parse once, or say where it cannot be.
ChatTemplate::ChatTemplate(std::string source) {
  auto program = std::make_shared<Program>();
  if (const std::size_t bad = jinja::invalid_utf8_at(source); bad != std::string::npos) {
    throw core::Error(core::Code::corrupt,
                      "the template is not UTF-8 at byte " + std::to_string(bad))
        .in("chat template");
  }
  program->text = jinja::normalize_newlines(source);
  program->source = std::move(source);
  try {
    if (program->text.size() > (1u << 24)) jinja::fail("a template of more than 16 MiB");
    program->block = jinja::parse(program->text);
  } catch (const jinja::LocatedFailure& failure) {
    throw located(failure, program->text);
  } catch (const jinja::Failure& failure) {
    throw core::Error(failure.code, failure.message).in("chat template");
  }
  program_ = std::move(program);
}

// Render for one conversation.
std::string ChatTemplate::render(const boost::json::object& context, const Limits& limits,
                                 std::time_t now) const {
  try {
    jinja::Dict variables;
    for (const auto& [name, value] : context) {
      variables.set(jinja::Value(std::string_view(name)), jinja::from_json(value));
    }
    return jinja::Interpreter(variables, limits, now).render(program_->block);
  } catch (const jinja::LocatedFailure& failure) {
    throw located(failure, program_->text);
  } catch (const jinja::Failure& failure) {  // while the context was taken over
    throw core::Error(failure.code, failure.message).in("context").hint(failure.hint);
  }
}

const std::string& ChatTemplate::source() const {
  return program_->source;
}

// Tell a template what Hugging Face would tell it.
boost::json::object chat_context(const boost::json::array& messages, const ChatOptions& options) {
  boost::json::object context;
  boost::json::array turns;
  for (const boost::json::value& message : messages) {
    if (!message.is_object()) {
      throw core::Error(core::Code::invalid_argument, "a message must be an object")
          .in("messages")
          .hint(R"(write {"role": "user", "content": "..."})");
    }
    boost::json::object turn;  // members that are null count as absent
    for (const auto& [key, value] : message.get_object()) {
      if (!value.is_null()) turn.emplace(key, value);
    }
    turns.emplace_back(std::move(turn));
  }
  context["messages"] = std::move(turns);
  if (options.tools.empty()) {
    context["tools"] = nullptr;
  } else {
    context["tools"] = options.tools;
  }
  context["documents"] = nullptr;
  context["add_generation_prompt"] = options.add_generation_prompt;
  if (!options.bos_token.empty()) context["bos_token"] = options.bos_token;
  if (!options.eos_token.empty()) context["eos_token"] = options.eos_token;
  for (const auto& [name, value] : options.extra) context[name] = value;
  return context;
}

}  // namespace rose::text
