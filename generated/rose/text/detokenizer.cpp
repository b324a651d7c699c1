// Hold back a character until its last byte has come.

#include "rose/text/detokenizer.h"

#include "rose/core/utf8.h"

namespace rose::text {

void Detokenizer::push(std::int32_t id, std::string& out) {
  const std::string_view bytes = tokenizer_.bytes(id);
  if (skip_special_ && tokenizer_.is_special(id)) return;
  pending_ += bytes;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const core::Utf8Step step = core::decode_utf8(pending_, at);
    if (step.incomplete) break;
    if (step.valid) {
      out.append(pending_, at, step.length);
    } else {
      out += "\xEF\xBF\xBD";  // U+FFFD
    }
    at += step.length;
  }
  pending_.erase(0, at);
}

void Detokenizer::finish(std::string& out) {
  if (!pending_.empty()) out += "\xEF\xBF\xBD";
  pending_.clear();
}

std::string Detokenizer::push(std::int32_t id) {
  std::string out;
  push(id, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  finish(out);
  return out;
}

}  // namespace rose::text
