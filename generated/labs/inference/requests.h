// Draw the requests that nano-vllm's benchmark draws.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rose::labs {

/// Python's random.Random: the Mersenne twister, seeded from one small integer.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint32_t seed) {
    fill(19'650'218);
    std::size_t i = 1;
    for (std::size_t k = 0; k < kSize; ++k) {
      state_[i] = (state_[i] ^ mixed(i) * 1'664'525u) + seed;
      if (++i == kSize) state_[0] = state_[kSize - 1], i = 1;
    }
    for (std::size_t k = 0; k + 1 < kSize; ++k) {
      state_[i] = (state_[i] ^ mixed(i) * 1'566'083'941u) - static_cast<std::uint32_t>(i);
      if (++i == kSize) state_[0] = state_[kSize - 1], i = 1;
    }
    state_[0] = 0x80000000u;
  }
  /// random.randint(low, high), both included.
  std::int32_t between(std::int32_t low, std::int32_t high) {
    const auto n = static_cast<std::uint32_t>(high - low + 1);
    const int bits = std::bit_width(n);
    std::uint32_t drawn = n;
    while (drawn >= n) drawn = next() >> (32 - bits);
    return low + static_cast<std::int32_t>(drawn);
  }

 private:
  // Twist, and temper.
  static constexpr std::size_t kSize = 624, kMiddle = 397;

  void fill(std::uint32_t seed) {
    state_[0] = seed;
    for (std::size_t i = 1; i < kSize; ++i) {
      state_[i] =
          1'812'433'253u * (state_[i - 1] ^ state_[i - 1] >> 30) + static_cast<std::uint32_t>(i);
    }
  }
  std::uint32_t mixed(std::size_t i) const { return state_[i - 1] ^ state_[i - 1] >> 30; }

  std::uint32_t next() {
    if (at_ == kSize) {
      for (std::size_t i = 0; i < kSize; ++i) {
        const std::uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
        state_[i] = state_[(i + kMiddle) % kSize] ^ y >> 1 ^ ((y & 1) != 0 ? 0x9908b0dfu : 0);
      }
      at_ = 0;
    }
    std::uint32_t y = state_[at_++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
  }

  std::array<std::uint32_t, kSize> state_{};
  std::size_t at_ = kSize;
};

struct MixedRequest {
  std::vector<std::int32_t> prompt;
  std::int32_t answer = 0;  ///< tokens
};

inline std::vector<MixedRequest> nano_vllm_requests() {
  constexpr std::int32_t least = 100, most = 1024, ids = 10'000;
  std::vector<MixedRequest> requests(256);
  PythonRandom random(0);
  for (MixedRequest& request : requests) {
    request.prompt.resize(static_cast<std::size_t>(random.between(least, most)));
    for (std::int32_t& id : request.prompt) id = random.between(0, ids);
  }
  for (MixedRequest& request : requests) request.answer = random.between(least, most);
  return requests;
}

}  // namespace rose::labs
