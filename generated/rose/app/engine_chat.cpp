// Talk with a model.

#include <unistd.h>

#include <iostream>
#include <memory>

#include "rose/app/engine_commands.h"
#include "rose/app/engine_options.h"
#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/text/template.h"

namespace rose::app {

namespace {

struct ChatArguments {
  EngineOptions engine;
  std::string system, question;
};

class Conversation {
 public:
  explicit Conversation(const ChatArguments& arguments);
  void ask(const std::string& question);
  void clear();

 private:
  const ChatArguments& arguments_;
  LoadedModel model_;
  text::ChatTemplate template_;
  core::json::array messages_;
};

// Render everything said so far, and add the answer to it.
Conversation::Conversation(const ChatArguments& arguments)
    : arguments_(arguments),
      model_(arguments.engine),
      template_(model_.checkpoint().chat_template) {
  if (model_.checkpoint().chat_template.empty()) {
    throw core::Error(
        core::Code::unsupported,
        "this model has no chat template: it continues texts, it was not taught to answer")
        .in(model_.checkpoint().path.string())
        .hint("`rose generate` continues a text");
  }
  clear();
}

void Conversation::clear() {
  messages_.clear();
  if (!arguments_.system.empty())
    messages_.push_back({{"role", "system"}, {"content", arguments_.system}});
}

void Conversation::ask(const std::string& question) {
  messages_.push_back({{"role", "user"}, {"content", question}});
  try {
    text::ChatOptions options;
    options.bos_token = model_.checkpoint().bos_token;
    options.eos_token = model_.checkpoint().eos_token;
    const std::string prompt = template_.render(text::chat_context(messages_, options));
    model_.stream(model_.tokenizer().encode(prompt, true), arguments_.engine);
  } catch (...) {
    messages_.pop_back();
    throw;
  }
  messages_.push_back({{"role", "assistant"}, {"content", model_.text()}});
}

// Read a line, answer it, until there are no more.
constexpr const char* chat_help =
    "/clear forgets the conversation, /exit leaves (so does Ctrl-D), Ctrl-C stops an answer\n";

void read_and_answer(Conversation& conversation) {
  const bool person = isatty(STDIN_FILENO) != 0;
  if (person) fmt::print(stderr, "{}", chat_help);
  for (std::string line;;) {
    if (person) fmt::print(stderr, "\n> ");
    if (!std::getline(std::cin, line)) break;
    if (line == "/exit") return;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/clear") {
      conversation.clear();
    } else if (line.starts_with('/')) {
      fmt::print(stderr, "{}", chat_help);
    } else {
      const int status = guarded([&] {
        require_utf8(line, "the message");
        conversation.ask(line);
        print("\n");
      });
      if (status != 0 && !person)
        throw core::Error(core::Code::cancelled, "the conversation ends here");
      take_interrupt();  // it stopped the answer, and that is all it should do
    }
  }
  if (take_interrupt()) throw core::Error(core::Code::cancelled, "interrupted");
}

void chat(const ChatArguments& arguments) {
  model::validate(arguments.engine.generate.sampling);
  Conversation conversation(arguments);
  catch_interrupts();
  if (arguments.question.empty()) {
    read_and_answer(conversation);
    return;
  }
  conversation.ask(arguments.question);
  print("\n");
  if (take_interrupt()) throw core::Error(core::Code::cancelled, "interrupted");
}

}  // namespace

// Declare the command.
void add_chat(CLI::App& app) {
  auto arguments = std::make_shared<ChatArguments>();
  arguments->engine.generate.max_tokens = 512;
  CLI::App* command =
      app.add_subcommand("chat", "Talk with a model; with a question, answer it and leave");
  command->add_option("question", arguments->question,
                      "One question; without it the conversation is read line by line");
  command->add_option("-s,--system", arguments->system,
                      "System message; the template's own when absent");
  add_engine_options(*command, arguments->engine);
  command->callback([arguments] { chat(*arguments); });
}

}  // namespace rose::app
