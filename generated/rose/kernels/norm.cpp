// Bring every row to a common scale.

#include "rose/kernels/norm.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/norm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <cmath>

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// Sum a row, and its squared distances from a centre, in sixteen lanes.
float row_sum(const float* x, std::int64_t count) {
  Sum16 s = zero16();
  for (std::int64_t k = 0; k < count; k += numerics::lanes) {
    for (int p = 0; p < parts; ++p) {
      const std::int64_t at = k + p * width;
      if (at < count) s.part[p] = hn::Add(s.part[p], load_some(x + at, count - at));
    }
  }
  return total(s);
}

float row_squares(const float* x, std::int64_t count, float centre) {
  Sum16 s = zero16();
  for (std::int64_t k = 0; k < count; k += numerics::lanes) {
    for (int p = 0; p < parts; ++p) {
      const std::int64_t at = k + p * width;
      if (at >= count) continue;
      const Vec d = hn::Sub(load_some(x + at, count - at, centre), set(centre));
      s.part[p] = fma(d, d, s.part[p]);
    }
  }
  return total(s);
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>

#include <string_view>

#include "rose/core/error.h"

namespace rose::kernels {

HWY_EXPORT(row_sum);
HWY_EXPORT(row_squares);

// Divide each row by its root mean square.
namespace {

std::int64_t checked_width(std::size_t x, std::int64_t m, std::size_t weight, std::size_t y,
                           std::size_t statistic, std::string_view where) {
  const auto rows = static_cast<std::size_t>(m);
  if (m < 0 || weight == 0 || x != rows * weight || y != x ||
      (statistic != 0 && statistic != rows)) {
    throw core::Error(
        core::Code::invalid_argument,
        fmt::format("x holds {} and y {} values for {} rows of width {}", x, y, m, weight))
        .in(std::string(where));
  }
  return static_cast<std::int64_t>(weight);
}

}  // namespace

void rmsnorm(std::span<const float> x, std::int64_t m, std::span<const float> weight, float eps,
             std::span<float> y, std::span<float> inv_rms, core::ThreadPool& pool) {
  const std::int64_t c =
      checked_width(x.size(), m, weight.size(), y.size(), inv_rms.size(), "rmsnorm");
  pool.for_range(m, 1 + 16'384 / c, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = x.data() + r * c;
      float* out = y.data() + r * c;
      const float mean_square =
          HWY_DYNAMIC_DISPATCH(row_squares)(in, c, 0.0f) / static_cast<float>(c);
      const float inv = 1.0f / std::sqrt(mean_square + eps);
      for (std::int64_t i = 0; i < c; ++i)
        out[i] = in[i] * inv * weight[static_cast<std::size_t>(i)];
      if (!inv_rms.empty()) inv_rms[static_cast<std::size_t>(r)] = inv;
    }
  });
}

// Centre each row first, as GPT-2 does.
void layernorm(std::span<const float> x, std::int64_t m, std::span<const float> weight,
               std::span<const float> bias, float eps, std::span<float> y, std::span<float> mean,
               std::span<float> inv_std, core::ThreadPool& pool) {
  const std::int64_t c =
      checked_width(x.size(), m, weight.size(), y.size(), inv_std.size(), "layernorm");
  if (bias.size() != weight.size() || mean.size() != inv_std.size()) {
    throw core::Error(core::Code::invalid_argument,
                      "weight and bias, or mean and inv_std, differ in size")
        .in("layernorm");
  }
  pool.for_range(m, 1 + 16'384 / c, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = x.data() + r * c;
      float* out = y.data() + r * c;
      const float centre = HWY_DYNAMIC_DISPATCH(row_sum)(in, c) / static_cast<float>(c);
      const float variance =
          HWY_DYNAMIC_DISPATCH(row_squares)(in, c, centre) / static_cast<float>(c);
      const float inv = 1.0f / std::sqrt(variance + eps);
      for (std::int64_t i = 0; i < c; ++i) {
        const auto j = static_cast<std::size_t>(i);
        out[i] = (in[i] - centre) * inv * weight[j] + bias[j];
      }
      if (!inv_std.empty()) {
        mean[static_cast<std::size_t>(r)] = centre;
        inv_std[static_cast<std::size_t>(r)] = inv;
      }
    }
  });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
