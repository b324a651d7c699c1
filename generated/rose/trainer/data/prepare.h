// Make shards from text.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/text/tokenizer.h"
#include "rose/trainer/data/quality.h"
#include "rose/trainer/data/text_source.h"

namespace rose::trainer {

enum class Duplicates : std::uint8_t { keep, exact, near };

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  ///< files, and folders of .txt, .md, .jsonl
  std::filesystem::path out;
  const text::Tokenizer* tokenizer = nullptr;
  std::optional<std::int32_t> separator{};  ///< else <|endoftext|>, else the tokenizer's eos
  double held_out = 0.005;                  ///< share of documents for validation
  std::int64_t shard_tokens = std::int64_t{1} << 25;
  std::size_t batch_bytes = std::size_t{1} << 24;
  TextSourceOptions source{};
  std::optional<QualityRules> quality{};
  Duplicates duplicates = Duplicates::exact;
  std::vector<std::filesystem::path> exams{};  ///< evaluation sets: .jsonl items, or lines of text
  core::ThreadPool* pool = nullptr;            ///< null: the process's
  bool quiet = false;
  std::function<void(std::int64_t documents)> after_batch{};  ///< may throw to cancel
};

struct PrepareResult {
  std::int64_t documents = 0, kept = 0, held_out = 0;  ///< held_out of kept
  std::int64_t tokens = 0, text_bytes = 0;             ///< of kept
  std::int64_t shards = 0;                             ///< pairs
  std::map<std::string, std::int64_t> dropped;         ///< by reason
  bool resumed = false;
};

/// Throws core::Error: what the readers throw, and invalid_argument when `out` holds another
/// preparation. May be called again after any failure, a kill included: it goes on.
PrepareResult prepare(const PrepareOptions& options);

/// The separator that prepare() would use. Throws core::Error (invalid_argument) when there is none.
std::int32_t separator_of(const text::Tokenizer& tokenizer);

}  // namespace rose::trainer
