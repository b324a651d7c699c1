// Walk over raw documents.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/files.h"

namespace rose::trainer {

struct TextSourceOptions {
  std::string text_field = "text";  ///< of a JSON line
  std::string delimiter{};          ///< a line between documents of a text file; empty: none
};

/// Bytes of one document as they are in a file, and where the file goes on.
struct RawDocument {
  std::shared_ptr<const core::MappedFile> file;
  std::string_view bytes;
  bool json = false;
  std::int64_t file_number = 0;
  std::uint64_t end = 0;  ///< offset behind it

  /// The text. Throws core::Error (corrupt) naming file and line for a line that is not JSON or
  /// has no such text.
  std::string text(const TextSourceOptions& options) const;
};

class TextSource {
 public:
  /// Throws core::Error: not_found, unsupported (Parquet).
  TextSource(const std::vector<std::filesystem::path>& inputs, TextSourceOptions options);

  bool next(RawDocument& out);  ///< false at the end
  void seek(std::int64_t file, std::uint64_t offset);

  const std::vector<std::filesystem::path>& files() const { return files_; }
  std::int64_t total_bytes() const { return total_; }
  std::int64_t done_bytes() const { return done_; }

 private:
  std::vector<std::filesystem::path> files_;
  TextSourceOptions options_;
  std::shared_ptr<const core::MappedFile> open_;
  std::int64_t number_ = 0, total_ = 0, done_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace rose::trainer
