// A language model: learn, score, write.

#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>

namespace rose::labs {

class Bigram {
 public:
  explicit Bigram(double alpha = 0.02) : alpha_(alpha) {}

  // Training: count which byte follows which.
  void learn(std::string_view text) {
    for (std::size_t i = 1; i < text.size(); ++i) ++count_[index(text[i - 1])][index(text[i])];
  }

  // The loss: bits of surprise per byte.
  double probability(char before, char after) const {
    const auto& row = count_[index(before)];
    double sum = 0;
    for (const double n : row) sum += n + alpha_;
    return (row[index(after)] + alpha_) / sum;
  }

  double bits_per_byte(std::string_view text) const {
    double bits = 0;
    for (std::size_t i = 1; i < text.size(); ++i)
      bits -= std::log2(probability(text[i - 1], text[i]));
    return bits / static_cast<double>(text.size() - 1);
  }

  // Generation: draw the next byte, again and again.
  std::string write(char first, std::size_t length, std::mt19937& random) const {
    std::string text(1, first);
    while (text.size() < length) {
      double left = static_cast<double>(random()) / 4294967296.0;  // uniform in [0, 1)
      unsigned byte = 0;
      while (byte < 255) {
        left -= probability(text.back(), static_cast<char>(byte));
        if (left < 0) break;
        ++byte;
      }
      text += static_cast<char>(byte);
    }
    return text;
  }

  static std::size_t index(char c) { return static_cast<unsigned char>(c); }

 private:
  double alpha_;
  std::array<std::array<double, 256>, 256> count_{};  // [before][after]
};

}  // namespace rose::labs
