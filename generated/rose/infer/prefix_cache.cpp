// Find pages by the tokens they hold.

#include "rose/infer/prefix_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>

namespace rose::infer {

// Chain a page to what came before.
PrefixHash chain_hash(PrefixHash before, std::span<const std::int32_t> tokens) {
  // The hash so far is the seed of the next: both halves of it go in.
  const XXH128_hash_t h = XXH3_128bits_withSeed(tokens.data(), tokens.size_bytes(),
                                                before.low ^ std::rotl(before.high, 1));
  return {h.low64, h.high64};
}

PrefixLink PrefixCache::root(std::uint64_t weights_version, std::string_view adapter,
                             std::string_view salt) {
  const auto [at, fresh] =
      roots_.try_emplace({weights_version, std::string(adapter), std::string(salt)});
  if (fresh) at->second = ++serials_;
  return {{at->second, 0}, at->second};
}

PrefixCache::PrefixCache(KvPool& pool, int page_size, Hash hash)
    : pool_(&pool), page_size_(static_cast<std::size_t>(page_size)), hash_(hash) {
  const auto pages = static_cast<std::size_t>(pool.usable() + 1);
  entries_.resize(pages);
  tokens_.resize(pages * page_size_);
  table_.resize(std::bit_ceil(2 * pages));
  pool.on_evict = [this](std::int32_t page) {
    remove(page);
    ++statistics_.evicted;
  };
}

// Look up, compare, remove.
std::size_t PrefixCache::slot_of(PrefixHash hash) const {
  std::size_t slot = home(hash);
  const std::uint32_t tag = tag_of(hash);
  while (table_[slot].page != 0 && !(table_[slot].tag == tag && entry_at(slot).hash == hash))
    slot = (slot + 1) & (table_.size() - 1);
  return slot;
}

std::span<std::int32_t> PrefixCache::tokens_of(std::int32_t page) {
  return std::span(tokens_).subspan(static_cast<std::size_t>(page) * page_size_, page_size_);
}

bool PrefixCache::holds(std::int32_t page, std::uint64_t before,
                        std::span<const std::int32_t> tokens) const {
  const Entry& entry = entries_[static_cast<std::size_t>(page)];
  const auto kept =
      std::span(tokens_).subspan(static_cast<std::size_t>(page) * page_size_, page_size_);
  return entry.before == before && std::ranges::equal(kept, tokens);
}

void PrefixCache::remove(std::int32_t page) {
  Entry& entry = entries_[static_cast<std::size_t>(page)];
  if (entry.serial == 0) return;
  const std::size_t mask = table_.size() - 1;
  std::size_t hole = slot_of(entry.hash);
  entry = {};
  --size_;
  for (std::size_t next = (hole + 1) & mask; table_[next].page != 0; next = (next + 1) & mask) {
    const std::size_t wanted = home(entry_at(next).hash);
    if (((next - wanted) & mask) < ((next - hole) & mask))
      continue;  // its home lies behind the hole
    table_[hole] = table_[next];
    hole = next;
  }
  table_[hole] = {};
}

// Walk along a text as far as it is known.
PrefixLink PrefixCache::find(PrefixLink at, std::span<const std::int32_t> tokens,
                             std::vector<std::int32_t>& pages) const {
  while (at.serial != 0 && tokens.size() >= page_size_) {
    const auto page_tokens = tokens.first(page_size_);
    const PrefixHash hash = hash_(at.hash, page_tokens);
    const std::int32_t page = table_[slot_of(hash)].page;
    if (page == 0) break;
    if (!holds(page, at.serial, page_tokens)) {
      ++statistics_.collisions;
      break;
    }
    pages.push_back(page);
    at = {hash, entries_[static_cast<std::size_t>(page)].serial};
    tokens = tokens.subspan(page_size_);
  }
  return at;
}

void PrefixCache::count_hit(std::int64_t asked, std::int64_t found) {
  ++statistics_.lookups;
  statistics_.tokens_asked += asked;
  statistics_.tokens_found += found;
}

// Make a written page known.
PrefixLink PrefixCache::publish(PrefixLink before, std::span<const std::int32_t> tokens,
                                std::int32_t page) {
  if (before.serial == 0) return {};
  const PrefixHash hash = hash_(before.hash, tokens);
  std::size_t slot = slot_of(hash);
  if (const std::int32_t known = table_[slot].page; known != 0) {
    const auto kept = tokens_of(known);
    if (holds(known, before.serial, tokens)) {
      statistics_.duplicates += known != page ? 1 : 0;
      return {hash, entries_[static_cast<std::size_t>(known)].serial};
    }
    if (!std::ranges::equal(kept, tokens)) {
      ++statistics_.collisions;
      return {};
    }
    remove(known);  // an orphan: the entry before it is gone
    pool_->unmark(known);
    slot = slot_of(hash);
  }
  Entry& entry = entries_[static_cast<std::size_t>(page)];
  entry = {hash, ++serials_, before.serial};
  std::ranges::copy(tokens, tokens_of(page).begin());
  table_[slot] = {page, tag_of(hash)};
  pool_->mark(page);
  ++size_;
  ++statistics_.published;
  return {hash, entry.serial};
}

void PrefixCache::forget_all() {
  for (std::size_t page = 1; page < entries_.size(); ++page) {
    if (entries_[page].serial == 0) continue;
    remove(static_cast<std::int32_t>(page));
    pool_->unmark(static_cast<std::int32_t>(page));
  }
  roots_.clear();
}

}  // namespace rose::infer
