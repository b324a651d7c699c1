// Find special tokens, normalise, split, merge.

#include "rose/text/tokenizer.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "rose/core/error.h"
#include "rose/core/hash.h"
#include "rose/text/added_tokens.h"
#include "rose/text/bpe.h"
#include "rose/text/detokenizer.h"
#include "rose/text/normalize.h"

namespace rose::text {
namespace {

// Remember short words and their ids, one word a slot.
class WordCache {
 public:
  static constexpr std::size_t max_bytes = 26, max_ids = 9;

  struct alignas(64) Slot {  // one cache line
    std::uint8_t bytes = 0, ids = 0;
    std::array<char, max_bytes> text;
    std::array<std::int32_t, max_ids> id{};
  };

  /// The slot of a word of 1 to max_bytes bytes, whether it holds that word or another.
  Slot& slot(std::string_view word) { return slots_[hash(word) >> (64 - bits)]; }
  static bool holds(const Slot& slot, std::string_view word) {
    return slot.bytes == word.size() &&
           std::memcmp(slot.text.data(), word.data(), word.size()) == 0;
  }
  static void fill(Slot& slot, std::string_view word, std::span<const std::int32_t> ids);

 private:
  static constexpr unsigned bits = 15;
  // Hash eight bytes at a time; the last eight overlap.
  static std::uint64_t hash(std::string_view word) {
    constexpr std::uint64_t k = 0x9E3779B97F4A7C15u;
    const auto load = [&](std::size_t at, std::size_t size) {
      std::uint64_t v = 0;
      std::memcpy(&v, word.data() + at, size);
      return v;
    };
    std::uint64_t h = word.size() * k;
    if (word.size() < 8) return (h ^ load(0, word.size())) * k;
    for (std::size_t at = 0; at + 8 < word.size(); at += 8) h = ((h ^ load(at, 8)) * k) ^ (h >> 29);
    return (h ^ load(word.size() - 8, 8)) * k;
  }
  std::vector<Slot> slots_ = std::vector<Slot>(std::size_t{1} << bits);
};

void WordCache::fill(Slot& slot, std::string_view word, std::span<const std::int32_t> ids) {
  slot.bytes = static_cast<std::uint8_t>(word.size());
  slot.ids = static_cast<std::uint8_t>(ids.size());
  std::memcpy(slot.text.data(), word.data(), word.size());
  std::copy(ids.begin(), ids.end(), slot.id.begin());
}

// Own the buffers of one encoding thread.
class Encoder {
 public:
  Encoder(const Vocab& vocab, const Bpe& bpe) : vocab_(vocab), bpe_(bpe) {}

  void encode(std::string_view text) {
    split(vocab_.split, text, [this](std::string_view word) { encode_word(word); });
  }
  void append(std::int32_t id) {
    make_room(1);
    ids_[size_++] = id;
  }
  std::span<const std::int32_t> ids() const { return {ids_.data(), size_}; }
  void reset();

 private:
  // Copy a known word's ids, nine at a time whatever their number, or work them out.
  void encode_word(std::string_view word) {
    make_room(WordCache::max_ids);
    WordCache::Slot* slot = nullptr;
    if (word.size() <= WordCache::max_bytes) {
      slot = &cache_.slot(word);
      if (WordCache::holds(*slot, word)) {
        std::memcpy(ids_.data() + size_, slot->id.data(), sizeof slot->id);
        size_ += slot->ids;
        return;
      }
    }
    const std::span<const std::int32_t> ids = bpe_.encode_word(word, scratch_);
    if (slot != nullptr && ids.size() <= WordCache::max_ids) WordCache::fill(*slot, word, ids);
    make_room(ids.size());
    std::copy(ids.begin(), ids.end(), ids_.data() + size_);
    size_ += ids.size();
  }

  void make_room(std::size_t more) {
    if (ids_.size() - size_ < more) ids_.resize(std::max(ids_.size() * 2, size_ + more));
  }

  const Vocab& vocab_;
  const Bpe& bpe_;
  WordCache cache_;
  Bpe::Scratch scratch_;
  std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(4096);  // the first size_ count
  std::size_t size_ = 0;
};

void Encoder::reset() {
  constexpr std::size_t keep = std::size_t{1}
                               << 20;  // one long text must not cost its memory for ever
  if (ids_.size() > keep) ids_ = std::vector<std::int32_t>(4096);
  if (scratch_.ids.capacity() > keep) scratch_ = {};
  size_ = 0;
}

// Hash everything that ids depend on.
std::uint64_t hash_of(const Vocab& v) {
  std::string all;
  const auto add = [&](std::string_view text) {
    all += fmt::format("{}:", text.size()), all += text;
  };
  for (const std::string& token : v.tokens) add(token);
  for (const Merge& m : v.merges)
    all += fmt::format("m{},{},{},{};", m.left, m.right, m.rank, m.result);
  for (const AddedToken& a : v.added) {
    all += fmt::format("a{},{:d}{:d}{:d}{:d}{:d};", a.id, a.special, a.single_word, a.lstrip,
                       a.rstrip, a.normalized);
    add(a.content);
  }
  for (const SplitRule rule : v.split) all += fmt::format("s{};", static_cast<int>(rule));
  all += fmt::format("f{:d}{:d}{:d},{};", v.nfc, v.ignore_merges, v.fuse_unk, v.unk.value_or(-1));
  for (const std::int32_t id : v.prefix) all += fmt::format("p{};", id);
  for (const std::int32_t id : v.suffix) all += fmt::format("q{};", id);
  return core::xxh3(all);
}

}  // namespace

// Share what never changes, and lend encoders to callers.
struct Tokenizer::State {
  explicit State(Vocab v)
      : vocab(std::move(v)), bpe(vocab), raw(vocab, false), normal(vocab, true) {
    special.assign(vocab.tokens.size(), false);
    for (const AddedToken& a : vocab.added) {
      if (a.special) special[static_cast<std::size_t>(a.id)] = true;
      added.emplace(a.content, a.id);
    }
    hash = hash_of(vocab);
  }

  Vocab vocab;
  Bpe bpe;
  AddedTokens raw, normal;  // searched before and after normalisation
  std::vector<bool> special;
  std::unordered_map<std::string, std::int32_t> added;
  std::uint64_t hash = 0;

  // Encoders that nobody uses at the moment; each has a warm cache.
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Encoder>> idle;

  std::unique_ptr<Encoder> borrow() const {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<Encoder>(vocab, bpe);
    auto encoder = std::move(idle.back());
    idle.pop_back();
    return encoder;
  }
  void give_back(std::unique_ptr<Encoder> encoder) const {
    encoder->reset();
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(encoder));
  }
};

// Build from a vocabulary.
Tokenizer::Tokenizer(Vocab vocab, std::string_view where) {
  check(vocab, where);
  state_ = std::make_shared<const State>(std::move(vocab));
}

// Build from the files.

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  return Tokenizer(vocab_from_hf(path), path.string());
}

Tokenizer Tokenizer::from_hf_json(std::string_view json, std::string_view where) {
  return Tokenizer(vocab_from_hf_json(json, where), where);
}

Tokenizer Tokenizer::from_gguf(const GgufVocab& gguf) {
  return Tokenizer(vocab_from_gguf(gguf), "tokenizer.ggml");
}

// Encode the text between the added tokens.
std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool parse_special) const {
  std::vector<std::int32_t> ids;
  encode(text, parse_special, ids);
  return ids;
}

void Tokenizer::encode(std::string_view text, bool parse_special,
                       std::vector<std::int32_t>& out) const {
  if (text.size() > std::size_t{1} << 30) {
    throw core::Error(core::Code::resource_exhausted,
                      "a text of more than 1 GiB must be encoded in pieces");
  }
  const State& s = *state_;
  std::unique_ptr<Encoder> encoder = s.borrow();
  const auto between = [&](const AddedTokens& tokens, std::string_view piece, const auto& rest) {
    if (tokens.empty()) return rest(piece);
    for (std::size_t done = 0, from = 0; done < piece.size();) {
      const AddedTokens::Match m = tokens.find(piece, from, done, parse_special);
      if (m.begin > done) rest(piece.substr(done, m.begin - done));
      if (m.token != nullptr) encoder->append(m.token->id);
      done = m.end, from = m.resume;
    }
  };
  between(s.raw, text, [&](std::string_view piece) {
    const bool change = s.vocab.nfc && !quick_check_nfc(piece);
    const std::string normal = change ? nfc(piece) : std::string();
    between(s.normal, change ? normal : piece,
            [&](std::string_view rest) { encoder->encode(rest); });
  });
  out.insert(out.end(), encoder->ids().begin(), encoder->ids().end());
  s.give_back(std::move(encoder));
}

// Concatenate bytes, then repair what is not UTF-8.
std::string_view Tokenizer::bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw core::Error(core::Code::out_of_range,
                      fmt::format("token id {} is not in a vocabulary of {}", id, vocab_size()))
        .hint("the model and the tokenizer may not belong together");
  }
  return state_->vocab.tokens[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const std::int32_t id : ids) detokenizer.push(id, text);
  detokenizer.finish(text);
  return text;
}

// Answer the small questions.
std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(state_->vocab.tokens.size());
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && state_->special[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::find(std::string_view bytes) const {
  if (const auto found = state_->added.find(std::string(bytes)); found != state_->added.end())
    return found->second;
  const std::int32_t id = state_->bpe.find(bytes);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::int32_t> Tokenizer::bos() const {
  return state_->vocab.bos;
}
std::optional<std::int32_t> Tokenizer::eos() const {
  return state_->vocab.eos;
}
std::optional<std::int32_t> Tokenizer::pad() const {
  return state_->vocab.pad;
}
std::span<const std::int32_t> Tokenizer::prefix() const {
  return state_->vocab.prefix;
}
std::span<const std::int32_t> Tokenizer::suffix() const {
  return state_->vocab.suffix;
}
const Vocab& Tokenizer::vocab() const {
  return state_->vocab;
}
std::uint64_t Tokenizer::hash() const {
  return state_->hash;
}

}  // namespace rose::text
