// The libraries behind the two hashes.

#include "rose/core/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include <array>

#include "rose/core/error.h"

namespace rose::core {

std::uint64_t xxh3(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t xxh3(std::string_view text) noexcept {
  return XXH3_64bits(text.data(), text.size());
}

Sha256::Sha256()
    : state_(EVP_MD_CTX_new(),
             [](void* context) { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context)); }) {
  if (!state_ ||
      EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(state_.get()), EVP_sha256(), nullptr) != 1) {
    throw Error(Code::internal, "OpenSSL offers no SHA-256");
  }
}

void Sha256::update(std::span<const std::byte> bytes) {
  EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(state_.get()), bytes.data(), bytes.size());
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(state_.get()), digest.data(), nullptr);
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_hex(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

}  // namespace rose::core
