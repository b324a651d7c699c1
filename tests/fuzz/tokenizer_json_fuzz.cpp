// The reader of tokenizer.json, then encoding and decoding with what it accepted. The input is a document, a zero byte, and a text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/error.h"
#include "rose/core/utf8.h"
#include "rose/text/detokenizer.h"
#include "rose/text/tokenizer.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// With all 256 bytes in the vocabulary, no normaliser and no token that swallows its surroundings, ids keep every byte.
bool is_lossless(const rose::text::Tokenizer& tokenizer) {
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    if (!tokenizer.find({&c, 1})) return false;
  }
  return !tokenizer.vocab().nfc;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rose;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(input.find('\0'), input.size());
  const std::string_view text = input.substr(std::min(cut + 1, input.size()));
  try {
    const auto tokenizer = text::Tokenizer::from_hf_json(input.substr(0, cut), "fuzz");
    std::vector<std::int32_t> ids = tokenizer.encode(text, false);
    require(ids == tokenizer.encode(text, false));  // the second time from the cache
    tokenizer.encode(text, true, ids);
    std::string pieces;
    text::Detokenizer detokenizer(tokenizer, false);
    for (const std::int32_t id : ids) {
      const std::string piece = detokenizer.push(id);
      require(core::is_utf8(piece));
      pieces += piece;
    }
    pieces += detokenizer.finish();
    require(pieces == tokenizer.decode(ids));
    if (is_lossless(tokenizer) && tokenizer.vocab().added.empty()) {
      std::string bytes;
      for (const std::int32_t id : tokenizer.encode(text, false)) bytes += tokenizer.bytes(id);
      require(bytes == text);
    }
    text::Tokenizer::from_hf_json(text::to_hf_json(tokenizer.vocab()), "again");
  } catch (const core::Error&) {
  }
  return 0;
}
