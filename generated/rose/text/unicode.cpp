// Unpack the class table once.

#include "rose/text/unicode.h"

#include <vector>

#include "rose/text/code_point.h"

namespace rose::text {
namespace {

// Map a character of the packed tables to its six bits.
std::uint32_t packed_digit(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<std::uint32_t>(c - 'A');
  if (c >= 'a' && c <= 'z') return static_cast<std::uint32_t>(c - 'a' + 26);
  if (c >= '0' && c <= '9') return static_cast<std::uint32_t>(c - '0' + 52);
  return c == '-' ? 62 : 63;
}

// Expand the runs: gap, length less one, class bits.
std::vector<std::uint8_t> unpack_classes() {
  std::vector<std::uint8_t> table(invalid_byte + 256, 0);
  PackedNumbers numbers(packed_class_runs());
  for (std::uint32_t at = 0; !numbers.done();) {
    at += numbers.next();
    const std::uint32_t length = numbers.next() + 1;
    const auto bits = static_cast<std::uint8_t>(numbers.next());
    for (const std::uint32_t end = at + length; at < end; ++at) table[at] = bits;
  }
  for (std::uint8_t& bits : table) {
    if ((bits & (letter | number | space)) == 0) bits |= other;
  }
  return table;
}

}  // namespace

std::uint32_t PackedNumbers::next() {
  std::uint32_t value = 0;
  for (unsigned shift = 0;; shift += 5) {
    const std::uint32_t digit = packed_digit(text_[at_++]);
    value |= (digit & 31) << shift;
    if (digit < 32) return value;
  }
}

std::int32_t PackedNumbers::next_signed() {
  const std::uint32_t v = next();
  return (v & 1) != 0 ? -static_cast<std::int32_t>(v / 2) - 1 : static_cast<std::int32_t>(v / 2);
}

const std::uint8_t* char_classes() {
  static const std::vector<std::uint8_t> table = unpack_classes();
  return table.data();
}

}  // namespace rose::text
