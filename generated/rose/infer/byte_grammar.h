// Tell which tokens a language allows next.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rose/core/parallel.h"
#include "rose/infer/automaton.h"
#include "rose/infer/grammar.h"
#include "rose/infer/threads.h"
#include "rose/infer/token_trie.h"

namespace rose::infer {

/// What a state allows whatever its stack, and the trie nodes at which its rule ends.
struct StateMask {
  std::vector<std::uint32_t> words;  ///< all words of the mask, or none where ids are fewer
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> ends;  ///< not leaves: below them the stack decides
};

/// A language for one vocabulary. Masks of states are made when they are first asked for, from any
/// thread, or all at once by `prepare`.
class ByteGrammar : public Grammar, public std::enable_shared_from_this<ByteGrammar> {
 public:
  ByteGrammar(Automaton automaton, std::shared_ptr<const TokenTrie> trie);
  ~ByteGrammar() override;
  ByteGrammar(const ByteGrammar&) = delete;
  ByteGrammar& operator=(const ByteGrammar&) = delete;

  std::unique_ptr<GrammarState> start() const override;
  void prepare(core::ThreadPool& pool) const;

  const Automaton& automaton() const { return automaton_; }
  const TokenTrie& trie() const { return *trie_; }
  const StateMask& mask_of(std::int32_t state) const;
  std::size_t mask_classes() const { return masks_.size(); }  ///< of states with equal masks

 private:
  void find_alike();
  std::unique_ptr<StateMask> compute(std::int32_t state) const;

  Automaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<std::int32_t> alike_;                           // [states] class
  std::vector<std::int32_t> representative_;                  // [classes] a state
  mutable std::vector<std::atomic<const StateMask*>> masks_;  // [classes]
};

/// The usual way to one.
std::shared_ptr<const ByteGrammar> compile(const Language& language, Language::Rule root,
                                           std::shared_ptr<const TokenTrie> trie);

}  // namespace rose::infer
