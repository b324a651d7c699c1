// Find pages by the tokens they hold.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "rose/infer/kv_pool.h"

namespace rose::infer {

struct PrefixHash {
  std::uint64_t low = 0, high = 0;
  bool operator==(const PrefixHash&) const = default;
};

/// XXH3-128 of a hash and some tokens: fast, and not safe against an adversary, which it need not be.
PrefixHash chain_hash(PrefixHash before, std::span<const std::int32_t> tokens);

/// How far a text has been followed. Serial 0: no further page can be found or published.
struct PrefixLink {
  PrefixHash hash{};
  std::uint64_t serial = 0;
};

struct PrefixStatistics {
  std::int64_t lookups = 0, tokens_asked = 0, tokens_found = 0;
  std::int64_t published = 0, duplicates = 0, evicted = 0, collisions = 0;
};

/// The index of a pool's pages. One thread uses it.
class PrefixCache {
 public:
  using Hash = PrefixHash (*)(PrefixHash before, std::span<const std::int32_t> tokens);
  PrefixCache(KvPool& pool, int page_size, Hash hash = chain_hash);
  PrefixCache(const PrefixCache&) = delete;  // the pool calls back
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache() { pool_->on_evict = nullptr; }

  /// Where every text under these begins.
  PrefixLink root(std::uint64_t weights_version, std::string_view adapter, std::string_view salt);

  /// The pages of the longest beginning of `tokens` that is known, appended to `pages`; returns where the text stands after them.
  /// Nobody owns them yet: share() each before anything else is taken from the pool.
  PrefixLink find(PrefixLink root, std::span<const std::int32_t> tokens,
                  std::vector<std::int32_t>& pages) const;

  /// Makes a full page known, after its keys were written. `tokens` are the page's. When the same text is known under another
  /// page, that one stays and this one remains private. Returns where the text stands now.
  PrefixLink publish(PrefixLink before, std::span<const std::int32_t> tokens, std::int32_t page);

  void forget_all();  ///< unpublishes every page: the weights have changed
  void count_hit(std::int64_t asked, std::int64_t found);
  const PrefixStatistics& statistics() const { return statistics_; }
  std::int64_t size() const { return size_; }

 private:
  // One entry for each page, and a table of pages.
  struct Slot {
    std::int32_t page = 0;  ///< 0: empty
    std::uint32_t tag = 0;  ///< the upper half of the hash's upper half
  };
  struct Entry {
    PrefixHash hash{};
    std::uint64_t serial = 0, before = 0;  ///< serial 0: this page is not published
  };

  std::size_t home(PrefixHash hash) const { return hash.low & (table_.size() - 1); }
  static std::uint32_t tag_of(PrefixHash hash) {
    return static_cast<std::uint32_t>(hash.high >> 32);
  }
  const Entry& entry_at(std::size_t slot) const {
    return entries_[static_cast<std::size_t>(table_[slot].page)];
  }
  std::size_t slot_of(PrefixHash hash) const;  ///< where it is, or the empty slot where it would be
  std::span<std::int32_t> tokens_of(std::int32_t page);
  bool holds(std::int32_t page, std::uint64_t before, std::span<const std::int32_t> tokens) const;
  void remove(std::int32_t page);

  KvPool* pool_;
  std::size_t page_size_;
  Hash hash_;
  std::vector<Entry> entries_;        ///< [pages]
  std::vector<std::int32_t> tokens_;  ///< [pages, page_size]
  std::vector<Slot> table_;
  std::map<std::tuple<std::uint64_t, std::string, std::string>, std::uint64_t, std::less<>> roots_;
  std::uint64_t serials_ = 0;
  std::int64_t size_ = 0;
  mutable PrefixStatistics statistics_;
};

}  // namespace rose::infer
