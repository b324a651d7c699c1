// Merge the most frequent pair until the vocabulary is full.

#include "rose/text/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "rose/text/byte_level.h"
#include "rose/text/normalize.h"

namespace rose::text {
namespace {

// Keep words as symbols, pairs with their counts and places, candidates in a heap.
using Pair = std::pair<std::int32_t, std::int32_t>;

struct Symbol {
  std::int32_t id;
  std::size_t bytes;
};

struct Word {
  std::vector<Symbol> symbols;
  std::int64_t count;
};

struct Candidate {
  std::int64_t count;
  Pair pair;
  std::vector<std::uint32_t> words;  // where the pair was seen when this entry was made

  bool operator<(const Candidate& other) const {  // the heap's top: most frequent, then lowest ids
    return count != other.count ? count < other.count : other.pair < pair;
  }
};

struct Change {
  Pair pair;
  std::int64_t by;
};

using Ids =
    std::unordered_map<std::string, std::int32_t>;  // of the tokens made so far, by their bytes

// Replace a pair in one word and note which neighbours changed.
void merge_word(std::vector<Symbol>& s, Pair pair, std::int32_t result, std::size_t max_bytes,
                std::vector<Change>& changes) {
  changes.clear();
  std::size_t out = 0;
  for (std::size_t in = 0; in < s.size(); ++in) {
    if (in + 1 == s.size() || s[in].id != pair.first || s[in + 1].id != pair.second) {
      s[out++] = s[in];
      continue;
    }
    const Symbol merged{result, s[in].bytes + s[in + 1].bytes};
    if (out > 0) {
      changes.push_back({{s[out - 1].id, pair.first}, -1});
      if (s[out - 1].bytes + merged.bytes < max_bytes)
        changes.push_back({{s[out - 1].id, result}, 1});
    }
    if (in + 2 < s.size()) {
      changes.push_back({{pair.second, s[in + 2].id}, -1});
      if (s[in + 2].bytes + merged.bytes < max_bytes)
        changes.push_back({{result, s[in + 2].id}, 1});
    }
    s[out++] = merged;
    ++in;
  }
  s.resize(out);
}

// Number the special tokens, then the bytes in the order of their spelling.
std::vector<std::int32_t> add_base_tokens(const BpeTrainerOptions& options, Vocab& vocab,
                                          Ids& id_of) {
  for (const std::string& text : options.special_tokens) {
    const auto same = [&](const AddedToken& a) { return a.content == text; };
    if (text.empty() || std::any_of(vocab.added.begin(), vocab.added.end(), same)) continue;
    const auto id = static_cast<std::int32_t>(vocab.tokens.size());
    vocab.added.push_back({.content = text, .id = id, .special = true});
    vocab.tokens.push_back(text);
    if (const auto bytes = unspell_bytes(text)) id_of.emplace(*bytes, id);
  }
  std::vector<unsigned char> bytes(256);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  std::sort(bytes.begin(), bytes.end(), [](auto a, auto b) { return byte_char(a) < byte_char(b); });
  std::vector<std::int32_t> id_of_byte(256);
  for (const unsigned char b : bytes) {
    const std::string token(1, static_cast<char>(b));
    const auto [entry, fresh] =
        id_of.try_emplace(token, static_cast<std::int32_t>(vocab.tokens.size()));
    if (fresh) vocab.tokens.push_back(token);
    id_of_byte[b] = entry->second;
  }
  return id_of_byte;
}

}  // namespace

// Count the words of a text.
void BpeTrainer::feed(std::string_view text) {
  const std::string normal = options_.nfc ? nfc(text) : std::string();
  split(options_.split, options_.nfc ? normal : text,
        [&](std::string_view word) { ++words_[std::string(word)]; });
}

// Run the merges.
Vocab BpeTrainer::train() const {
  Vocab vocab;
  vocab.split = options_.split;
  vocab.nfc = options_.nfc;
  Ids id_of;
  const std::vector<std::int32_t> id_of_byte = add_base_tokens(options_, vocab, id_of);
  // Spell each distinct word in bytes, in an order that does not depend on the hash table.
  std::vector<std::pair<std::string_view, std::int64_t>> sorted(words_.begin(), words_.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<Word> words;
  words.reserve(sorted.size());
  for (const auto& [bytes, count] : sorted) {
    Word word{.symbols = {}, .count = count};
    for (const char c : bytes)
      word.symbols.push_back({id_of_byte[static_cast<unsigned char>(c)], 1});
    words.push_back(std::move(word));
  }
  // Count every pair once; later only differences are counted.
  std::map<Pair, std::int64_t> counts;
  std::map<Pair, std::vector<std::uint32_t>> places;
  const auto seen_in = [&](Pair pair, std::uint32_t word) {
    std::vector<std::uint32_t>& list = places[pair];
    if (list.empty() || list.back() != word) list.push_back(word);
  };
  for (std::uint32_t w = 0; w < words.size(); ++w) {
    const std::vector<Symbol>& s = words[w].symbols;
    for (std::size_t i = 0; i + 1 < s.size(); ++i) {
      counts[{s[i].id, s[i + 1].id}] += words[w].count;
      seen_in({s[i].id, s[i + 1].id}, w);
    }
  }
  std::vector<Candidate> heap;
  const auto push = [&](Candidate c) {
    heap.push_back(std::move(c));
    std::push_heap(heap.begin(), heap.end());
  };
  const auto queue_places = [&] {
    for (auto& [pair, list] : places) {
      if (counts[pair] > 0) push({counts[pair], pair, std::move(list)});
    }
    places.clear();
  };
  queue_places();
  std::vector<Change> changes;
  while (vocab.tokens.size() < options_.vocab_size && !heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    Candidate top = std::move(heap.back());
    heap.pop_back();
    if (const std::int64_t now = counts[top.pair];
        top.count != now) {  // went stale: put it where it belongs
      top.count = now;
      if (now > 0) push(std::move(top));
      continue;
    }
    if (top.count < std::max<std::int64_t>(options_.min_frequency, 1)) break;
    // Make the new token and count what it changed.
    const std::string bytes = vocab.tokens[static_cast<std::size_t>(top.pair.first)] +
                              vocab.tokens[static_cast<std::size_t>(top.pair.second)];
    const auto [entry, fresh] =
        id_of.try_emplace(bytes, static_cast<std::int32_t>(vocab.tokens.size()));
    const std::int32_t result = entry->second;
    if (fresh) vocab.tokens.push_back(bytes);
    vocab.merges.push_back(
        {top.pair.first, top.pair.second, static_cast<std::int32_t>(vocab.merges.size()), result});
    for (const std::uint32_t w : top.words) {
      merge_word(words[w].symbols, top.pair, result, options_.max_token_bytes, changes);
      for (const Change& change : changes) {
        counts[change.pair] += change.by * words[w].count;
        if (change.by > 0) seen_in(change.pair, w);
      }
    }
    queue_places();
  }
  return vocab;
}

}  // namespace rose::text
