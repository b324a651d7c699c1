// Find a scale under which gradients neither vanish nor overflow.

#pragma once

#include <cstdint>

namespace rose::trainer {

/// What the loss is multiplied with before the backward pass, a power of two.
class LossScale {
 public:
  explicit LossScale(float first = 65536.0f, std::int64_t patience = 2000)
      : scale_(first), patience_(patience) {}

  float scale() const { return scale_; }
  std::int64_t good() const { return good_; }  ///< steps since the scale last changed
  void restore(float scale, std::int64_t good) { scale_ = scale, good_ = good; }

  void succeeded() {
    constexpr float most = 16777216.0f;  // 2^24
    if (++good_ < patience_) return;
    good_ = 0;
    if (scale_ < most) scale_ *= 2.0f;
  }
  /// A gradient was not finite: the step is left out.
  void failed() {
    good_ = 0;
    if (scale_ > 1.0f) scale_ /= 2.0f;
  }

 private:
  float scale_;
  std::int64_t patience_, good_ = 0;
};

}  // namespace rose::trainer
