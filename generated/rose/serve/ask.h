// One form for everything that can be asked.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rose/core/json.h"
#include "rose/serve/backend.h"
#include "rose/serve/fields.h"
#include "rose/serve/model_card.h"
#include "rose/serve/tool_parser.h"

namespace rose::serve {

inline constexpr std::size_t most_prompts = 1024;  ///< of one request

class AnswerForm;

struct Ask {
  enum class Style : std::uint8_t { chat, completion, generate };
  Style style = Style::chat;
  std::string model;
  std::vector<std::vector<std::int32_t>> prompts;
  Question question;  ///< without its prompt
  int n = 1;          ///< answers wanted of question.sampling.n, of which the likeliest are given
  bool stream = false, include_usage = false;
  bool usage_each = false;               ///< of a stream: the usage so far in every event
  bool logprobs = false;                 ///< to be written
  bool echo = false, no_answer = false;  ///< completions: the prompt too; it alone
  ParserOptions parser;
  std::string prompt_field = "prompt", format_field = "response_format";  ///< as the request says
  std::shared_ptr<AnswerForm> form;  ///< null: the answer is written as `style` says
};

// Each throws ApiError.
Ask read_completion(const json::object& body, const ModelCard& card);
Ask read_generate(const json::object& body, const ModelCard& card);
Ask read_chat(const json::object& body, const ModelCard& card);

/// Prompts in their four forms: text, texts, ids, lists of ids; `most` at most. Texts that begin have the tokens with which all texts begin.
std::vector<std::vector<std::int32_t>> read_prompts(Fields& fields, const ModelCard& card,
                                                    const std::string& field, std::size_t most,
                                                    bool begin = true);
/// Fields that all of them have. `prompt_field` is what the request calls its prompt.
void read_sampling(Fields& fields, const ModelCard& card, Ask& ask);
/// Checks the prompts against the context and gives max_tokens its default.
void fit_context(Ask& ask, const ModelCard& card, bool limited, const std::string& prompt_field);
void read_stream(Fields& fields, Ask& ask);
void read_model(Fields& fields, const ModelCard& card, Ask& ask);

/// The prompt of a conversation. Throws ApiError for messages that are none.
std::string chat_prompt(Fields& fields, const ModelCard& card, const json::array& tools,
                        bool generation_prompt = true);
/// The same for messages that have been read; `field` is what the request calls them.
std::string render_chat(Fields& fields, const ModelCard& card, json::array messages,
                        const json::array& tools, const std::string& field,
                        bool generation_prompt = true);
json::array read_tools(Fields& fields, Ask& ask);
/// Refuses a name that no tool may have.
void check_tool_name(const std::string& name, const std::string& path);
/// Whether a call may be made ("none", "auto"), must be ("required"), or must be of the tool with this name.
void choose_tools(const json::array& tools, std::string_view word, std::string_view name,
                  const std::string& format_field, Ask& ask);
void read_warmth(Fields& fields, infer::Sampling& sampling);  ///< temperature and top_p
/// Where the requests of one cache are told from another's, and who is first.
void read_place(Fields& fields, Question& question);

}  // namespace rose::serve
