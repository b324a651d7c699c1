// Map files to read them, and replace files whole.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>

namespace rose::core {

// A whole file as read-only memory.
class MappedFile {
 public:
  /// Throws not_found, io, or invalid_argument for anything but a regular file.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

// A whole file, or a pipe, as a string.

/// Reads to the end. Throws not_found or io, and resource_exhausted beyond `limit` bytes.
std::string read_file(const std::filesystem::path& path,
                      std::size_t limit = std::numeric_limits<std::size_t>::max());

// A file that appears complete or not at all.
enum class Durability {
  process,  ///< survives the death of this process at any instruction
  power     ///< also survives the machine losing power: waits for the disk
};

class AtomicFile {
 public:
  /// Opens a temporary file beside `target`. Throws io, or invalid_argument when the target
  /// exists and is not a regular file.
  explicit AtomicFile(const std::filesystem::path& target);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();  ///< without commit(): removes the temporary, the target is untouched

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  std::uint64_t written() const noexcept { return written_; }
  /// Renames the temporary over the target. Nothing may be written afterwards.
  void commit(Durability durability = Durability::process);

 private:
  std::filesystem::path target_, temporary_;
  std::string buffer_;
  std::uint64_t written_ = 0;
  int descriptor_ = -1;
  void flush();
};

void write_file_atomic(const std::filesystem::path& path, std::string_view contents,
                       Durability durability = Durability::process);

}  // namespace rose::core
