// Fill micro-batches from a position.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "rose/core/json.h"
#include "rose/trainer/data/micro_batch.h"
#include "rose/trainer/data/stream.h"

namespace rose::trainer {

enum class Packing : std::uint8_t {
  concatenate,  ///< no padding; documents are cut at the ends of rows
  best_fit      ///< only documents longer than a row are cut; little padding
};

struct LoaderOptions {
  std::vector<DataSource> sources;
  std::uint64_t seed = 1;
  bool shuffle = true;  ///< false: documents in the order of the files
  Packing packing = Packing::concatenate;
  std::int64_t window = 1024;               ///< documents that best_fit packs together
  std::int32_t vocab_size = 0;              ///< the model's; 0: any
  std::optional<std::int32_t> separator{};  ///< of files that do not name theirs
};

// Keep what is half used.

/// Micro-batches as a function of (options, position). Rows are a sequence: next(a) and next(b)
/// give together what next(a + b) gives, so the micro-batch size does not change the data.
class Loader {
 public:
  explicit Loader(const LoaderOptions& options);

  /// Fills `out` with exactly rows * context tokens. Throws core::Error: invalid_argument when all
  /// data is shorter than one window, out_of_range for a token beyond the vocabulary.
  void next(std::int64_t rows, std::int64_t context, MicroBatchBuffer& out);
  /// As next(), without reading tokens: the rows of other ranks.
  void skip(std::int64_t rows, std::int64_t context);

  /// Where the next batch begins: small, and all there is.
  core::json::value position() const;
  /// Throws core::Error (corrupt) when the position is of other data or another packing.
  void restore(const core::json::value& position);

  std::int64_t cells() const { return stream_.cells(); }  ///< predictions in one epoch
  std::int64_t documents() const { return stream_.documents(); }
  /// Of the source that is furthest: epochs begun, minus one.
  std::int64_t epoch() const;

 private:
  void advance(std::int64_t rows, std::int64_t context, MicroBatchBuffer* out);
  void concatenate(std::int64_t context, MicroBatchBuffer* out);
  void take_packed_row(std::int64_t context, MicroBatchBuffer* out);
  void pack_window(std::int64_t context);
  void copy(const Document& document, std::int64_t begin, std::int64_t n, MicroBatchBuffer* out);

  LoaderOptions options_;
  DocumentStream stream_;
  std::optional<Document> current_;                        // concatenate: being read
  std::int64_t cell_ = 0;                                  // its next cell
  std::vector<std::pair<Document, std::int64_t>> pieces_;  // best_fit: of the window; first cell
  std::vector<std::vector<std::int64_t>> packed_;          // rows of the window
  std::vector<DocumentStream::Place> window_start_;
  std::int64_t row_ = 0, packed_context_ = 0;
  std::vector<std::int32_t> inputs_, targets_;
};

}  // namespace rose::trainer
