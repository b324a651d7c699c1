// Write what TensorBoard reads.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace rose::trainer {

/// CRC-32C (Castagnoli) of bytes.
std::uint32_t crc32c(std::string_view bytes);

class EventFile {
 public:
  /// A new file in `folder`, for a run that goes on from `step`. Throws core::Error (io).
  EventFile(const std::filesystem::path& folder, std::int64_t step, double wall_time);

  void scalar(std::string_view tag, std::int64_t step, double value, double wall_time);
  void flush();  ///< throws core::Error (io)
  const std::filesystem::path& path() const { return path_; }

 private:
  void record(const std::string& event);
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace rose::trainer
