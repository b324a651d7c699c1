// Any bytes as the body of a request. It is read, or refused as the API refuses; what is read is within the limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "rose/core/error.h"
#include "rose/core/json.h"
#include "rose/infer/sampling.h"
#include "rose/serve/ask.h"
#include "rose/serve/embeddings.h"
#include "rose/serve/response_form.h"
#include "rose/serve/scores.h"
#include "rose/text/byte_level.h"

namespace {

using namespace rose;

const serve::ModelCard& card() {
  static const serve::ModelCard made = [] {
    text::Vocab vocab;
    for (int byte = 0; byte < 256; ++byte) vocab.tokens.emplace_back(1, static_cast<char>(byte));
    serve::ModelCard c{.name = "m", .aliases = {}, .tokenizer = text::Tokenizer(std::move(vocab))};
    c.chat.emplace(
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}");
    c.positions = 4096, c.vocab = 256;
    return c;
  }();
  return made;
}

// Questions that are put together: each is one that an engine would take.
template <class Read>
void gather(const core::json::object& body, Read ask) {
  try {
    const auto asked = ask(body, card());
    if (asked.questions.empty()) std::abort();
    for (const serve::Question& question : asked.questions) {
      infer::validate(question.sampling, card().vocab);
      if (question.prompt.empty() ||
          static_cast<std::int64_t>(question.prompt.size()) >= card().positions)
        std::abort();
    }
  } catch (const serve::ApiError& error) {
    if (error.status < 400 || error.status >= 500 || error.body().empty()) std::abort();
  }
}

template <class Read>
void read(const core::json::object& body, Read ask) {
  try {
    const serve::Ask asked = ask(body, card());
    infer::validate(asked.question.sampling, card().vocab);
    for (const auto& prompt : asked.prompts)
      if (prompt.empty() ||
          static_cast<std::int64_t>(prompt.size()) + asked.question.sampling.max_tokens >
              card().positions)
        std::abort();
  } catch (const serve::ApiError& error) {
    if (error.status < 400 || error.status >= 500 || error.body().empty()) std::abort();
  } catch (const core::Error& error) {
    if (error.code() == core::Code::internal) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  core::json::value value;
  try {
    value = core::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz",
                             {.bytes = std::size_t{1} << 20, .depth = 64});
  } catch (const core::Error&) {
    return 0;
  }
  if (!value.is_object()) return 0;
  read(value.get_object(), serve::read_chat);
  read(value.get_object(), serve::read_completion);
  read(value.get_object(), serve::read_generate);
  read(value.get_object(), serve::read_response);
  gather(value.get_object(), serve::read_embeddings);
  gather(value.get_object(), serve::read_scores);
  return 0;
}
