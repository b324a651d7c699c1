// Say which tokens may come next.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace rose::infer {

/// Where one text stands in its language. Not shared between threads.
class GrammarState {
 public:
  virtual ~GrammarState() = default;

  /// Takes a token. False, and nothing has changed, when the language has no text that goes on so.
  virtual bool accept(std::int32_t token) = 0;
  /// Sets bit v % 32 of words[v / 32] for every token v that accept would take, and clears the
  /// others; tokens that end a text are the caller's.
  virtual void mask(std::span<std::uint32_t> words) = 0;
  virtual bool can_end() const = 0;        ///< the text is complete
  virtual bool must_end() const = 0;       ///< complete, and nothing may follow
  virtual std::string forced() const = 0;  ///< the bytes that every text goes on with from here
  virtual std::unique_ptr<GrammarState> clone() const = 0;
};

/// A language, ready for one tokenizer: immutable, shared by all requests that use it.
class Grammar {
 public:
  virtual ~Grammar() = default;
  virtual std::unique_ptr<GrammarState> start() const = 0;
};

}  // namespace rose::infer
