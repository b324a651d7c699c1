#include "cache.h"

#include <openssl/evp.h>

#include <array>
#include <stdexcept>

#include "files.h"

namespace weave {

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (unsigned i = 0; i < length; ++i) {
    text += digits[digest[i] >> 4U];
    text += digits[digest[i] & 15U];
  }
  return text;
}

std::string Cache::path(std::string_view kind, std::string_view key) const {
  return folder_ + "/" + std::string(kind) + "/" + std::string(key);
}

std::optional<std::string> Cache::find(std::string_view kind, std::string_view key) const {
  return tangle::read_file(path(kind, key));
}

void Cache::keep(std::string_view kind, std::string_view key, std::string_view bytes) const {
  std::string trouble = tangle::make_folders(folder_ + "/" + std::string(kind));
  if (trouble.empty()) trouble = tangle::write_file_atomic(path(kind, key), bytes);
  if (!trouble.empty()) throw std::runtime_error(trouble);
}

}  // namespace weave
