// Apply merges in the order in which they were learnt.

#include "rose/text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "rose/core/hash.h"

namespace rose::text {
namespace {

constexpr std::int32_t none =
    std::numeric_limits<std::int32_t>::max();  // the rank of a pair that does not merge
constexpr std::size_t short_word = 48;

// Keep special tokens out of the index: no word may become one.
std::vector<bool> special_ids(const Vocab& vocab) {
  std::vector<bool> skip(vocab.tokens.size(), false);
  for (const AddedToken& a : vocab.added) {
    if (a.special && a.content.size() > 1)
      skip[static_cast<std::size_t>(a.id)] = true;  // a byte stays a byte
  }
  return skip;
}

}  // namespace

// Fill the table to at most half.
MergeTable::MergeTable(const std::vector<Merge>& merges) {
  entries_.resize(std::bit_ceil(std::max<std::size_t>(merges.size() * 2, 16)));
  mask_ = entries_.size() - 1;
  for (const Merge& m : merges) {
    std::size_t i = slot(key(m.left, m.right));
    while (entries_[i].pair != ~std::uint64_t{0} && entries_[i].pair != key(m.left, m.right))
      i = (i + 1) & mask_;
    entries_[i] = {key(m.left, m.right), m.rank,
                   m.result};  // of two merges of one pair, the later counts
  }
}

// Store ids in the slots and compare bytes in the vocabulary.
TokenIndex::TokenIndex(const std::vector<std::string>& tokens, const std::vector<bool>& skip)
    : tokens_(&tokens) {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(tokens.size() * 2, 16)), -1);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (skip[id] || tokens[id].empty() || find(tokens[id]) >= 0) continue;
    std::size_t i = core::xxh3(tokens[id]) & mask;
    while (slots_[i] >= 0) i = (i + 1) & mask;
    slots_[i] = static_cast<std::int32_t>(id);
  }
}

std::int32_t TokenIndex::find(std::string_view bytes) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = core::xxh3(bytes) & mask; slots_[i] >= 0; i = (i + 1) & mask) {
    if ((*tokens_)[static_cast<std::size_t>(slots_[i])] == bytes) return slots_[i];
  }
  return -1;
}

// Look up the token of each single byte.
Bpe::Bpe(const Vocab& vocab)
    : vocab_(&vocab), merges_(vocab.merges), index_(vocab.tokens, special_ids(vocab)) {
  for (std::size_t b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    id_of_byte_[b] = index_.find({&c, 1});
  }
}

// Start from bytes, then merge.
std::span<const std::int32_t> Bpe::encode_word(std::string_view word, Scratch& scratch) const {
  std::vector<std::int32_t>& ids = scratch.ids;
  ids.clear();
  if (vocab_->ignore_merges) {
    if (const std::int32_t id = index_.find(word); id >= 0) {
      ids.push_back(id);
      return ids;
    }
  }
  bool after_unknown = false;
  for (const char c : word) {
    const std::int32_t id = id_of_byte_[static_cast<unsigned char>(c)];
    if (id >= 0) {
      ids.push_back(id);
    } else if (vocab_->unk && !(after_unknown && vocab_->fuse_unk)) {
      ids.push_back(*vocab_->unk);
    }
    after_unknown = id < 0;
  }
  if (ids.size() <= short_word) {
    merge_short(ids);
  } else {
    merge_long(scratch);
  }
  return ids;
}

// In a short word, scan for the lowest rank and close the gap.
void Bpe::merge_short(std::vector<std::int32_t>& ids) const {
  std::array<std::int32_t, short_word> rank, result;
  std::size_t n = ids.size();
  const auto look = [&](std::size_t i) {
    const MergeTable::Entry* m = merges_.find(ids[i], ids[i + 1]);
    rank[i] = m != nullptr ? m->rank : none;
    result[i] = m != nullptr ? m->result : 0;
  };
  for (std::size_t i = 0; i + 1 < n; ++i) look(i);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) best = rank[i] < rank[best] ? i : best;
    if (rank[best] == none) break;
    ids[best] = result[best];
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      rank[i] = rank[i + 1], result[i] = result[i + 1];
    }
    --n;
    if (best > 0) look(best - 1);
    if (best + 1 < n) look(best);
  }
  ids.resize(n);
}

// In a long word, keep the candidates in a heap and the symbols in a linked list.
void Bpe::merge_long(Scratch& scratch) const {
  auto& [ids, previous, next, rank, heap] = scratch;
  const std::size_t n = ids.size();
  previous.resize(n), next.resize(n), rank.assign(n, none), heap.clear();
  const auto look = [&](std::size_t i) {  // the candidate of symbol i and the one after it
    const MergeTable::Entry* m =
        next[i] < 0 ? nullptr : merges_.find(ids[i], ids[static_cast<std::size_t>(next[i])]);
    rank[i] = m != nullptr ? m->rank : none;
    if (m != nullptr) heap.push_back(std::uint64_t{static_cast<std::uint32_t>(m->rank)} << 32 | i);
    return m != nullptr;
  };
  for (std::size_t i = 0; i < n; ++i) {
    previous[i] = static_cast<std::int32_t>(i) - 1;
    next[i] = i + 1 < n ? static_cast<std::int32_t>(i + 1) : -1;
  }
  for (std::size_t i = 0; i < n; ++i) look(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  // Take the lowest rank, leftmost first, and drop candidates that went stale.
  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto i = static_cast<std::size_t>(top & 0xFFFFFFFFu);
    if (rank[i] != static_cast<std::int32_t>(top >> 32)) continue;
    const auto j = static_cast<std::size_t>(next[i]);
    ids[i] = merges_.find(ids[i], ids[j])->result;
    rank[j] = none;  // j is gone
    next[i] = next[j];
    if (next[i] >= 0) previous[static_cast<std::size_t>(next[i])] = static_cast<std::int32_t>(i);
    if (look(i)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (previous[i] >= 0 && look(static_cast<std::size_t>(previous[i]))) {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  std::size_t size = 0;
  for (std::int32_t i = 0; i >= 0; i = next[static_cast<std::size_t>(i)])
    ids[size++] = ids[static_cast<std::size_t>(i)];
  ids.resize(size);
}

}  // namespace rose::text
