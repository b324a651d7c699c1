// Philox and the distributions over it.

#include "rose/core/rng.h"

#include <cmath>
#include <numbers>

#include "rose/core/error.h"

namespace rose::core {

// Multiply, swap, and add the key, ten times.
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> c,
                                        std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;  // the golden ratio
    key[1] += 0xBB67AE85;  // the square root of three, less one
  }
  return c;
}

// Compute the block that a position lies in, once.
std::uint32_t Rng::next() noexcept {
  const std::uint64_t block = position_ / 4;
  if (block != block_) {
    words_ =
        philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                    static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
                   {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
    block_ = block;
  }
  return words_[position_++ % 4];
}

std::uint64_t Rng::next64() noexcept {
  const std::uint64_t low = next();
  return low | std::uint64_t{next()} << 32;
}

// Shape uniform words into other distributions.
float Rng::uniform() noexcept {
  return static_cast<float>(next() >> 8) * 0x1p-24f;
}

double Rng::uniform64() noexcept {
  return static_cast<double>(next64() >> 11) * 0x1p-53;
}

float Rng::normal() noexcept {
  const double u = 1.0 - uniform64();  // (0, 1]: a logarithm of it exists
  const double angle = 2.0 * std::numbers::pi * uniform64();
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(angle));
}

std::uint32_t Rng::below(std::uint32_t n) {
  if (n == 0) throw Error(Code::invalid_argument, "there is no number below zero");
  const std::uint32_t reject = (0u - n) % n;  // 2^32 mod n
  for (;;) {
    const std::uint64_t scaled = std::uint64_t{next()} * n;
    if (static_cast<std::uint32_t>(scaled) >= reject)
      return static_cast<std::uint32_t>(scaled >> 32);
  }
}

std::uint64_t Rng::below64(std::uint64_t n) {
  if (n == 0) throw Error(Code::invalid_argument, "there is no number below zero");
  using Wide = unsigned __int128;
  const std::uint64_t reject = (std::uint64_t{0} - n) % n;
  for (;;) {
    const Wide scaled = Wide{next64()} * n;
    if (static_cast<std::uint64_t>(scaled) >= reject)
      return static_cast<std::uint64_t>(scaled >> 64);
  }
}

}  // namespace rose::core
