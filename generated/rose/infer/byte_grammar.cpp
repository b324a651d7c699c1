// Tell which tokens a language allows next.

#include "rose/infer/byte_grammar.h"

#include <algorithm>
#include <unordered_map>

#include "rose/core/hash.h"

namespace rose::infer {

namespace {

// Walk the trie and the automaton together.
struct Walk {
  const Automaton& automaton;
  const TokenTrie& trie;
  Stacks& stacks;
  std::vector<Thread>& threads;

  /// visit(node, begin) for every node below `from` that threads[begin, end) reach; those before
  /// are other levels'.
  template <class Visit>
  void below(std::int32_t from, std::size_t begin, std::size_t end, const Visit& visit) {
    const std::int32_t last = trie.end(from);
    for (std::int32_t node = from + 1; node < last; node = trie.end(node)) {
      step_threads(automaton, stacks, threads, begin, end, trie.byte(node));
      if (threads.size() > end) {
        visit(node, end);
        if (!trie.is_leaf(node)) below(node, end, threads.size(), visit);
        threads.resize(end);
      }
    }
  }
};

// Follow one text.
class ByteState : public GrammarState {
 public:
  explicit ByteState(std::shared_ptr<const ByteGrammar> grammar) : grammar_(std::move(grammar)) {
    threads_.push_back({grammar_->automaton().start(), -1});
    close_threads(grammar_->automaton(), stacks_, threads_, 0);
  }

  bool accept(std::int32_t token) override {
    const std::string_view bytes = grammar_->trie().bytes(token);
    if (bytes.empty()) return false;
    std::vector<Thread> now = threads_;
    for (const char c : bytes)
      if (!advance(now, static_cast<unsigned char>(c))) return false;
    threads_.swap(now);
    return true;
  }

  bool can_end() const override {
    return std::ranges::any_of(threads_, [&](const Thread& t) {
      return t.stack < 0 && grammar_->automaton().accepts(t.state);
    });
  }
  bool must_end() const override {
    return std::ranges::none_of(threads_, [&](const Thread& t) {
      return std::ranges::any_of(grammar_->automaton().moves(t.state),
                                 [](std::int32_t m) { return m >= 0; });
    });
  }
  void mask(std::span<std::uint32_t> words) override;
  std::string forced() const override;
  std::unique_ptr<GrammarState> clone() const override {
    return std::make_unique<ByteState>(*this);
  }

 private:
  bool advance(std::vector<Thread>& threads, unsigned char byte) const {
    const std::size_t before = threads.size();
    step_threads(grammar_->automaton(), stacks_, threads, 0, before, byte);
    threads.erase(threads.begin(), threads.begin() + static_cast<std::ptrdiff_t>(before));
    return !threads.empty();
  }

  std::shared_ptr<const ByteGrammar> grammar_;
  mutable Stacks stacks_;
  std::vector<Thread> threads_, masked_;  // masked_: those that mask_ was made for
  std::vector<std::uint32_t> mask_;
};

void ByteState::mask(std::span<std::uint32_t> words) {
  constexpr std::size_t bits = 32;
  if (mask_.empty() || masked_ != threads_) {
    const TokenTrie& trie = grammar_->trie();
    mask_.assign((static_cast<std::size_t>(trie.vocab_size()) + bits - 1) / bits, 0);
    const auto allow = [&](std::int32_t id) {
      mask_[static_cast<std::size_t>(id) / bits] |= 1u << static_cast<unsigned>(id) % bits;
    };
    std::vector<Thread> after;
    Walk walk{grammar_->automaton(), trie, stacks_, after};
    for (const Thread& t : threads_) {
      const StateMask& own = grammar_->mask_of(t.state);
      for (std::size_t w = 0; w < own.words.size(); ++w) mask_[w] |= own.words[w];
      for (const std::int32_t id : own.ids) allow(id);
      if (t.stack < 0 || own.ends.empty()) continue;
      const Stacks::Cell cell = stacks_.cell(t.stack);
      after.assign(1, {cell.after, cell.below});
      close_threads(grammar_->automaton(), stacks_, after, 0);
      const std::size_t returned = after.size();
      for (const std::int32_t node : own.ends)
        walk.below(node, 0, returned, [&](std::int32_t reached, std::size_t) {
          for (const std::int32_t token : trie.tokens(reached)) allow(token);
        });
    }
    masked_ = threads_;
  }
  const std::size_t n = std::min(words.size(), mask_.size());
  std::copy_n(mask_.begin(), n, words.begin());
  std::fill(words.begin() + static_cast<std::ptrdiff_t>(n), words.end(), 0u);
}

std::string ByteState::forced() const {
  constexpr std::size_t most = 1024;
  std::string text;
  std::vector<Thread> now = threads_;
  const Automaton& a = grammar_->automaton();
  while (text.size() < most) {
    int only = -1;
    bool free = false;  // two bytes are possible, or the end
    for (const Thread& t : now) {
      free = free || (t.stack < 0 && a.accepts(t.state));
      for (int b = 0; b < 256 && !free; ++b) {
        if (a.move(t.state, static_cast<unsigned char>(b)) < 0 || b == only) continue;
        free = only >= 0;
        only = b;
      }
    }
    if (free || only < 0) break;
    text += static_cast<char>(only);
    advance(now, static_cast<unsigned char>(only));
  }
  return text;
}

}  // namespace

// Find the states that no token can tell apart.
void ByteGrammar::find_alike() {
  const std::size_t states = automaton_.size();
  std::vector<std::int32_t> next(states);
  alike_.resize(states);
  for (std::size_t s = 0; s < states; ++s)
    alike_[s] = automaton_.accepts(static_cast<std::int32_t>(s)) ? 1 : 0;
  std::size_t classes = 0;
  std::vector<std::int32_t> signature;
  const auto class_at = [&](std::int32_t s) { return alike_[static_cast<std::size_t>(s)]; };
  for (std::size_t round = 0; round <= trie_->longest(); ++round) {
    std::unordered_map<std::string, std::int32_t> known;
    representative_.clear();
    for (std::size_t s = 0; s < states; ++s) {
      const auto state = static_cast<std::int32_t>(s);
      signature.assign(1, alike_[s]);
      for (const std::int32_t m : automaton_.moves(state))
        signature.push_back(m < 0 ? -1 : class_at(m));
      for (const Automaton::Call& call : automaton_.calls(state)) {
        signature.push_back(class_at(call.rule_start));
        signature.push_back(class_at(call.after));
      }
      const std::string key(reinterpret_cast<const char*>(signature.data()),
                            signature.size() * sizeof(std::int32_t));
      const auto [at, added] =
          known.try_emplace(key, static_cast<std::int32_t>(representative_.size()));
      if (added) representative_.push_back(state);
      next[s] = at->second;
    }
    alike_.swap(next);
    if (representative_.size() == classes) break;
    classes = representative_.size();
  }
}

// Divide the tokens for a state without its stack.
std::unique_ptr<StateMask> ByteGrammar::compute(std::int32_t state) const {
  auto mask = std::make_unique<StateMask>();
  Stacks stacks;
  std::vector<Thread> threads{{state, -1}};
  Walk walk{automaton_, *trie_, stacks, threads};
  walk.below(0, 0, 1, [&](std::int32_t node, std::size_t begin) {
    for (const std::int32_t token : trie_->tokens(node)) mask->ids.push_back(token);
    if (trie_->is_leaf(node)) return;
    for (std::size_t i = begin; i < threads.size(); ++i) {
      if (threads[i].stack >= 0 || !automaton_.accepts(threads[i].state)) continue;
      mask->ends.push_back(node);
      break;
    }
  });
  constexpr std::size_t bits = 32;
  const std::size_t words = (static_cast<std::size_t>(trie_->vocab_size()) + bits - 1) / bits;
  if (mask->ids.size() > words) {
    mask->words.resize(words);
    for (const std::int32_t id : mask->ids)
      mask->words[static_cast<std::size_t>(id) / bits] |= 1u << static_cast<unsigned>(id) % bits;
    mask->ids = {};
  }
  mask->ids.shrink_to_fit();
  mask->ends.shrink_to_fit();
  return mask;
}

// Make every mask once.
ByteGrammar::ByteGrammar(Automaton automaton, std::shared_ptr<const TokenTrie> trie)
    : automaton_(std::move(automaton)), trie_(std::move(trie)) {
  find_alike();
  masks_ = std::vector<std::atomic<const StateMask*>>(representative_.size());
}

ByteGrammar::~ByteGrammar() {
  for (const auto& mask : masks_) delete mask.load();
}

const StateMask& ByteGrammar::mask_of(std::int32_t state) const {
  const auto which = static_cast<std::size_t>(alike_[static_cast<std::size_t>(state)]);
  std::atomic<const StateMask*>& place = masks_[which];
  const StateMask* mask = place.load(std::memory_order_acquire);
  if (mask != nullptr) return *mask;
  std::unique_ptr<StateMask> fresh = compute(representative_[which]);
  if (place.compare_exchange_strong(mask, fresh.get(), std::memory_order_acq_rel))
    return *fresh.release();
  return *mask;
}

void ByteGrammar::prepare(core::ThreadPool& pool) const {
  pool.for_range(static_cast<std::int64_t>(representative_.size()), 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     mask_of(representative_[static_cast<std::size_t>(i)]);
                 });
}

std::unique_ptr<GrammarState> ByteGrammar::start() const {
  return std::make_unique<ByteState>(shared_from_this());
}

std::shared_ptr<const ByteGrammar> compile(const Language& language, Language::Rule root,
                                           std::shared_ptr<const TokenTrie> trie) {
  return std::make_shared<const ByteGrammar>(Automaton(language, root), std::move(trie));
}

}  // namespace rose::infer
