// A fast hash for tables, a slow one for identity.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace rose::core {

/// XXH3, 64 bits: for tables, caches and change detection. Not safe against an adversary.
std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept;
std::uint64_t xxh3(std::string_view text) noexcept;

/// SHA-256 as 64 lower-case hexadecimal digits: for names that must mean the contents.
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);

/// SHA-256 of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  std::string hex();  ///< of everything so far; no update may follow

 private:
  std::shared_ptr<void> state_;
};

}  // namespace rose::core
