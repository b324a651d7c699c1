// Walk over the documents of several sources.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rose/core/json.h"
#include "rose/trainer/data/shard.h"

namespace rose::trainer {

struct DataSource {
  std::string name;
  std::vector<std::filesystem::path> files;  ///< shards
  double weight = 1.0;                       ///< share of tokens, relative to the others'
};

/// A document as the model reads it: `cells` pairs of an input and the token after it.
struct Document {
  std::int64_t source = 0;
  const Shard* shard = nullptr;
  DocumentRange range;
  std::int64_t cells = 0;

  /// Copies cells [begin, begin + n): n inputs and n targets.
  void read(std::int64_t begin, std::span<std::int32_t> inputs,
            std::span<std::int32_t> targets) const;
};

// Walk without an end.

/// An endless sequence of documents, a function of (sources, seed, position).
class DocumentStream {
 public:
  struct Place {
    std::int64_t epoch = 0, next = 0, cells = 0;  ///< of one source; cells are a running sum
    bool operator==(const Place&) const = default;
  };

  DocumentStream(std::vector<DataSource> sources, const ShardExpectation& expected,
                 std::uint64_t seed, bool shuffle);

  Document next();
  /// The document that next() gave last for this source.
  Document last_of(std::int64_t source) const;

  const std::vector<Place>& places() const { return places_; }
  void seek(const std::vector<Place>& places);
  std::int64_t cells() const;  ///< of all documents once
  std::int64_t documents() const;
  std::uint64_t fingerprint() const { return fingerprint_; }  ///< of the data, not of the position

 private:
  struct Source {
    std::string name;
    double weight = 1.0;
    std::vector<Shard> shards;
    std::vector<std::int64_t> first;   // document number at which a shard begins, and the total
    std::vector<std::uint32_t> order;  // of the epoch in ordered_epoch
    std::int64_t ordered_epoch = -1, cells = 0;
  };
  void arrange(std::size_t source);
  Document document(std::size_t source, std::int64_t number) const;

  std::vector<Source> sources_;
  std::vector<Place> places_;
  std::uint64_t seed_, fingerprint_ = 0;
  bool shuffle_;
};

}  // namespace rose::trainer
