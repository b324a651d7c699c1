// Render twice, and learn the difference.

#include "rose/trainer/chat_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::trainer {

namespace json = core::json;
using core::Code;
using core::Error;

std::int64_t ChatSequence::learnt_tokens() const {
  return std::count(learnt.begin(), learnt.end(), std::uint8_t{1});
}

ChatEncoder::ChatEncoder(text::Tokenizer tokenizer, std::string source, std::string bos,
                         std::string eos)
    : tokenizer_(std::move(tokenizer)),
      template_(std::move(source)),
      bos_(std::move(bos)),
      eos_(std::move(eos)) {}

// Render, tokenise a piece, look for special tokens in it.
std::string ChatEncoder::render(const json::array& messages, const json::array& tools,
                                bool open) const {
  text::ChatOptions options;
  options.add_generation_prompt = open;
  options.bos_token = bos_, options.eos_token = eos_;
  options.tools = tools;
  return template_.render(text::chat_context(messages, options));
}

void ChatEncoder::append(std::string_view text, bool learnt, ChatSequence& out) const {
  const std::vector<std::int32_t> ids = tokenizer_.encode(text, true);
  const auto end = std::find_if(ids.rbegin(), ids.rend(),
                                [&](std::int32_t id) { return tokenizer_.is_special(id); });
  // One more than the last special token; a text without one counts whole.
  const auto last = end == ids.rend() ? ids.size() : static_cast<std::size_t>(ids.rend() - end);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    out.ids.push_back(ids[i]);
    out.learnt.push_back(learnt && i < last ? 1 : 0);
  }
}

void ChatEncoder::check_content(const Conversation& conversation) const {
  for (std::size_t m = 0; m < conversation.messages.size(); ++m) {
    const json::value* content = core::find(conversation.messages[m].as_object(), "content");
    if (content == nullptr || !content->is_string()) continue;
    for (const std::int32_t id : tokenizer_.encode(content->as_string(), true)) {
      if (!tokenizer_.is_special(id)) continue;
      throw Error(Code::invalid_argument,
                  fmt::format("message {} holds the special token {}", m + 1, tokenizer_.bytes(id)))
          .in(conversation.where)
          .hint("it would become that token and end the turn: write it otherwise");
    }
  }
}

std::vector<std::int32_t> ChatEncoder::prompt(const json::array& messages,
                                              const json::array& tools) const {
  return tokenizer_.encode(render(messages, tools, true), true);
}

// Walk over the answers.
std::vector<ChatSequence> ChatEncoder::encode(const Conversation& conversation) const {
  check_content(conversation);
  std::vector<ChatSequence> out;
  ChatSequence sequence;
  const auto close = [&] {
    while (!sequence.ids.empty() && sequence.learnt.back() == 0)
      sequence.ids.pop_back(), sequence.learnt.pop_back();
    if (!sequence.ids.empty()) out.push_back(std::move(sequence));
    sequence = {.ids = {}, .learnt = {}, .where = conversation.where};
  };
  close();
  std::string written;  // of the sequence so far
  json::array said;
  try {
    for (std::size_t m = 0; m < conversation.messages.size(); ++m) {
      const json::value& message = conversation.messages[m];
      if (message.as_object().at("role").as_string() != "assistant") {
        said.push_back(message);
        continue;
      }
      const std::string open = render(said, conversation.tools, true);
      said.push_back(message);
      std::string whole = render(said, conversation.tools, false);
      if (!whole.starts_with(open) || whole.size() == open.size())
        throw Error(Code::invalid_argument,
                    fmt::format("the template does not write answer {} behind the prompt that asks "
                                "for it",
                                m + 1));
      if (!open.starts_with(written)) close(), written.clear();
      append(std::string_view(open).substr(written.size()), false, sequence);
      append(std::string_view(whole).substr(open.size()), conversation.learnt[m] == 1, sequence);
      written = std::move(whole);
    }
  } catch (const Error& error) {
    throw Error(error.code(), error.message()).in(conversation.where).hint(error.hint());
  }
  close();
  return out;
}

std::optional<std::int32_t> ChatEncoder::end_of_answer() const {
  const json::array messages{{{"role", "user"}, {"content", "a"}},
                             {{"role", "assistant"}, {"content", "b"}}};
  const std::vector<ChatSequence> all = encode(conversation_of(messages, "the template", true));
  const std::int32_t last = all.back().ids.back();
  return tokenizer_.is_special(last) ? std::optional(last) : std::nullopt;
}

// Two templates by name.
namespace {

constexpr const char* chatml =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr const char* plain =
    "{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ 'User: ' + message['content'] + '\\n' }}{% elif message['role'] == 'assistant' %}"
    "{{ 'Assistant: ' + message['content'] + eos_token + '\\n' }}{% else %}"
    "{{ message['content'] + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}";

}  // namespace

std::string chat_template_source(const std::string& name_or_file) {
  if (name_or_file == "chatml") return chatml;
  if (name_or_file == "plain") return plain;
  if (!std::filesystem::exists(name_or_file))
    throw Error(Code::not_found, "there is no such chat template")
        .in(name_or_file)
        .hint("chatml, plain, or a file in Jinja's language");
  return core::read_file(name_or_file);
}

}  // namespace rose::trainer
