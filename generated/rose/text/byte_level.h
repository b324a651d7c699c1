// Spell bytes as printable characters, as GPT-2's files do.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rose::text {

/// The character that stands for a byte in `vocab.json`, `merges.txt`, `tokenizer.json` and GGUF:
/// itself where it is printable Latin-1, the next free one from U+0100 on where it is not (so a
/// space is Ġ, U+0120).
std::uint32_t byte_char(unsigned char byte);

/// A byte string in that spelling.
std::string spell_bytes(std::string_view bytes);

/// The bytes behind a spelling; nothing when one of its characters stands for no byte.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace rose::text
