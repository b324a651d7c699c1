// Read and write GGUF files.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "rose/model/files/stored_tensor.h"

namespace rose::model {

// A metadata value; the variant's index is the type number of the format.
struct GgufArray;

using GgufValue = std::variant<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t,
                               std::uint32_t, std::int32_t, float, bool, std::string, GgufArray,
                               std::uint64_t, std::int64_t, double>;

struct GgufArray {
  std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::uint16_t>,
               std::vector<std::int16_t>, std::vector<std::uint32_t>, std::vector<std::int32_t>,
               std::vector<float>, std::vector<bool>, std::vector<std::string>,
               std::vector<GgufArray>, std::vector<std::uint64_t>, std::vector<std::int64_t>,
               std::vector<double>>
      items;

  bool operator==(const GgufArray&) const = default;
};

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// An open GGUF file.
class GgufFile {
 public:
  /// Maps and validates. Throws core::Error: not_found, corrupt, unsupported, io.
  static GgufFile open(const std::filesystem::path& path);
  /// Validates bytes that `owner` (or the caller, if null) keeps alive; `where` names them.
  static GgufFile parse(std::span<const std::byte> bytes, std::string where,
                        std::shared_ptr<const void> owner = nullptr);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  const GgufMetadata& metadata() const { return metadata_; }
  const GgufValue* value(std::string_view key) const;  ///< null when absent

  // Typed access; empty when absent, core::Error when the value has another type.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string_view> text(std::string_view key) const;
  const std::vector<std::string>* texts(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;

  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  const std::string& where() const { return where_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::string where_;
  std::shared_ptr<const void> owner_;
  std::uint32_t version_ = 3;
  std::uint64_t alignment_ = 32;
  GgufMetadata metadata_;
  std::unordered_map<std::string, std::size_t> keys_, names_;
  std::vector<StoredTensor> tensors_;

  void place(std::span<const std::byte> bytes, std::uint64_t data_begin);
};

// Writing: the header first, then the data in the same order.
inline constexpr std::uint64_t gguf_alignment = 32;

/// How far a tensor of so many bytes reaches with the padding that must follow it.
constexpr std::uint64_t gguf_padded(std::uint64_t bytes) {
  return (bytes + gguf_alignment - 1) / gguf_alignment * gguf_alignment;
}

/// Everything before the data, padding included. Each tensor's bytes must follow, in this order,
/// each padded with zeros to gguf_padded().
std::string gguf_header(const GgufMetadata& metadata, std::span<const PlannedTensor> tensors);

}  // namespace rose::model
