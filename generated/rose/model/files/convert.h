// Carry a model from one format into another.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "rose/kernels/dtype.h"

namespace rose::model {

struct Checkpoint;  // rose/model/files/checkpoint.h

struct ConvertOptions {
  /// Of the matrices. Empty: each weight keeps its own. f32, f16 or bf16; for GGUF also q8_0,
  /// q5_1, q5_0, q4_1 and q4_0.
  std::optional<kernels::DType> dtype;
  bool overwrite = false;  ///< replace an existing GGUF file (a folder is never replaced)
  bool tokenizer = true;   ///< carry the tokenizer; false: weights and configuration only
  /// Called as bytes are written; may throw to cancel.
  std::function<void(std::uint64_t done, std::uint64_t total, std::string_view tensor)> progress;
  /// Called with a finished Hugging Face folder before it gets its name: may change what is in it.
  std::function<void(const std::filesystem::path& folder)> finish{};
};

struct ConvertResult {
  std::uint64_t bytes = 0;  ///< of weights
  std::int64_t tensors = 0;
  std::int64_t kept_f32 = 0;  ///< matrices whose rows are no whole number of blocks
};

/// Reads any checkpoint that open_checkpoint() opens. Writes a GGUF file when `to` ends in .gguf,
/// otherwise a folder in Hugging Face's layout. The result is complete or absent: whatever goes
/// wrong, a full disk included, is a core::Error, and nothing is left behind.
ConvertResult convert(const std::filesystem::path& from, const std::filesystem::path& to,
                      const ConvertOptions& options = {});

/// The same for a checkpoint that is open already, and perhaps no longer what its file says.
ConvertResult convert(const Checkpoint& source, const std::filesystem::path& to,
                      const ConvertOptions& options = {});

}  // namespace rose::model
