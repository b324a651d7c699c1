// Tell letters, numbers and spaces apart.

#pragma once

#include <cstdint>
#include <string_view>

namespace rose::text {

/// What a code point is to the split rules; a set of bits.
enum CharClass : std::uint8_t {
  letter = 1,   ///< \p{L}
  number = 2,   ///< \p{N}
  space = 4,    ///< \s
  numeric = 8,  ///< a number to the `Digits` splitter, which follows another version of Unicode
  word = 16,    ///< \w, for added tokens that match whole words only
  other = 32,   ///< none of letter, number and space
};

/// The class bits of every value that `read_code_point` returns: 0x110000 code points, then 256
/// invalid bytes (`other`).
const std::uint8_t* char_classes();

/// The generated tables, in the coding that `unicode.cpp` describes.
std::string_view packed_class_runs();
std::string_view packed_decompositions();
std::string_view packed_combining_runs();

/// Reads the numbers of a packed table: five bits a character, low bits first, 32 marks that more
/// follow.
class PackedNumbers {
 public:
  explicit PackedNumbers(std::string_view text) : text_(text) {}
  bool done() const { return at_ >= text_.size(); }
  std::uint32_t next();
  std::int32_t next_signed();  ///< 0, -1, 1, -2, 2, … as 0, 1, 2, 3, 4, …

 private:
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace rose::text
