// Random numbers as a function of seed, stream and position.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace rose::core {

/// Ten rounds of Philox 4x32 (Salmon et al. 2011): four random words from a counter and a key.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter,
                                        std::array<std::uint32_t, 2> key) noexcept;

// The words of one stream, in order, from any position.
class Rng {
 public:
  /// The key is the seed; the counter is (position / 4, stream). Position counts 32-bit words.
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0, std::uint64_t position = 0) noexcept
      : seed_(seed), stream_(stream), position_(position) {}

  std::uint32_t next() noexcept;           ///< one word
  std::uint64_t next64() noexcept;         ///< two words, the first one low
  float uniform() noexcept;                ///< one word: a multiple of 2^-24 in [0, 1)
  double uniform64() noexcept;             ///< two words: a multiple of 2^-53 in [0, 1)
  float normal() noexcept;                 ///< four words: mean 0, variance 1
  std::uint32_t below(std::uint32_t n);    ///< exactly uniform in [0, n); one word, rarely more
  std::uint64_t below64(std::uint64_t n);  ///< the same from pairs of words

  std::uint64_t seed() const noexcept { return seed_; }
  std::uint64_t stream() const noexcept { return stream_; }
  std::uint64_t position() const noexcept { return position_; }  ///< of the next word
  void seek(std::uint64_t position) noexcept { position_ = position; }

  // A standard uniform random bit generator, for <random>.
  using result_type = std::uint32_t;
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()() noexcept { return next(); }

 private:
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t seed_, stream_, position_;
  std::uint64_t block_ = none;  // which four words words_ holds; a cache, not a state
  std::array<std::uint32_t, 4> words_{};
};

// Shuffle in an order that every standard library agrees on.

/// Fisher and Yates: every permutation equally likely.
template <class T>
void shuffle(std::span<T> items, Rng& rng) {
  for (std::size_t i = items.size(); i > 1; --i) {
    const bool small = i <= std::numeric_limits<std::uint32_t>::max();
    const std::uint64_t j = small ? rng.below(static_cast<std::uint32_t>(i)) : rng.below64(i);
    using std::swap;
    swap(items[i - 1], items[static_cast<std::size_t>(j)]);
  }
}

}  // namespace rose::core
