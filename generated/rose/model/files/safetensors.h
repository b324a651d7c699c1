// Read and write safetensors files.

#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/model/files/stored_tensor.h"

namespace rose::model {

class SafetensorsFile {
 public:
  /// Maps and validates. Throws core::Error: not_found, corrupt, io.
  static SafetensorsFile open(const std::filesystem::path& path);
  /// Validates bytes that `owner` (or the caller, if null) keeps alive; `where` names them.
  static SafetensorsFile parse(std::span<const std::byte> bytes, std::string where,
                               std::shared_ptr<const void> owner = nullptr);

  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& where() const { return where_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::string where_;
  std::shared_ptr<const void> owner_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// The files that `model.safetensors.index.json` names, and which of them holds which tensor.
struct SafetensorsIndex {
  std::vector<std::string> files;  ///< names inside the folder, sorted
  std::map<std::string, std::string> file_of_tensor;
};
SafetensorsIndex parse_safetensors_index(std::string_view json, const std::string& where);

/// Length word and JSON for these tensors in this order, padded so that the data is aligned.
/// The tensors' bytes follow without gaps. Only f32, f16, bf16, i32 and u8 can be stored.
std::string safetensors_header(std::span<const PlannedTensor> tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace rose::model
