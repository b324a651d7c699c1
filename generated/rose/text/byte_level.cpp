// Number the unprintable bytes from U+0100.

#include "rose/text/byte_level.h"

#include <array>

#include "rose/text/code_point.h"

namespace rose::text {
namespace {

struct Spelling {
  std::array<std::uint16_t, 256> to_char{};
  std::array<std::int16_t, 324> to_byte{};  // -1: stands for no byte
};

constexpr Spelling make_spelling() {
  Spelling s;
  s.to_byte.fill(-1);
  std::uint16_t next = 256;
  for (std::uint16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
    const std::uint16_t c = printable ? b : next++;
    s.to_char[b] = c;
    s.to_byte[c] = static_cast<std::int16_t>(b);
  }
  return s;
}

constexpr Spelling spelling = make_spelling();

}  // namespace

std::uint32_t byte_char(unsigned char byte) {
  return spelling.to_char[byte];
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) put_code_point(out, byte_char(static_cast<unsigned char>(c)));
  return out;
}

std::optional<std::string> unspell_bytes(std::string_view spelled) {
  std::string out;
  const auto* p = reinterpret_cast<const unsigned char*>(spelled.data());
  for (const auto* end = p + spelled.size(); p < end;) {
    const CodePoint c = read_code_point(p, end);
    if (c.value >= spelling.to_byte.size() || spelling.to_byte[c.value] < 0) return std::nullopt;
    out.push_back(static_cast<char>(spelling.to_byte[c.value]));
    p += c.size;
  }
  return out;
}

}  // namespace rose::text
