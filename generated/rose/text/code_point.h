// Read and write UTF-8 one code point at a time.

#pragma once

#include <cstdint>
#include <string>

namespace rose::text {

/// A code point and the number of bytes that spelled it.
struct CodePoint {
  std::uint32_t value;
  std::uint32_t size;
};

/// A byte that is no part of well-formed UTF-8 is read as the value `invalid_byte + byte`, above
/// all code points, so that any byte string can be walked, classified and written back unchanged.
inline constexpr std::uint32_t invalid_byte = 0x110000;

// Decode the code point at p, which is before end.
inline CodePoint read_code_point(const unsigned char* p, const unsigned char* end) {
  const std::uint32_t a = p[0];
  if (a < 0x80) return {a, 1};
  const auto left = end - p;
  const auto tail = [&](std::ptrdiff_t i) { return i < left && (p[i] & 0xC0) == 0x80; };
  const auto bits = [&](std::ptrdiff_t i) { return static_cast<std::uint32_t>(p[i] & 0x3F); };
  if (a >= 0xC2 && a < 0xE0 && tail(1)) return {(a & 0x1F) << 6 | bits(1), 2};
  if ((a & 0xF0) == 0xE0 && tail(1) && tail(2)) {
    const std::uint32_t c = (a & 0x0F) << 12 | bits(1) << 6 | bits(2);
    if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) return {c, 3};
  }
  if (a >= 0xF0 && a < 0xF5 && tail(1) && tail(2) && tail(3)) {
    const std::uint32_t c = (a & 0x07) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3);
    if (c >= 0x10000 && c < 0x110000) return {c, 4};
  }
  return {invalid_byte + a, 1};
}

// Append a code point, or the invalid byte that it stands for.
inline void put_code_point(std::string& out, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c >= invalid_byte) {
    put(c - invalid_byte);
  } else if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)),
        put(0x80 | (c & 0x3F));
  }
}

}  // namespace rose::text
