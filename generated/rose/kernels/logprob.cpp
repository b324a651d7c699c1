// Say how likely a token was.

#include "rose/kernels/logprob.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/logprob.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// Sum a row of exponentials tile by tile.
float logsumexp_row(const float* x, std::int64_t count) {
  float highest = -std::numeric_limits<float>::infinity(), sum = 0.0f;
  for (std::int64_t first = 0; first < count; first += numerics::logsumexp_tile) {
    const std::int64_t n = std::min<std::int64_t>(numerics::logsumexp_tile, count - first);
    const float* tile = x + first;
    float tile_highest = tile[0];
    for (std::int64_t j = 1; j < n; ++j)
      tile_highest = tile[j] > tile_highest ? tile[j] : tile_highest;
    const float common = std::max(highest, tile_highest);
    if (common == -std::numeric_limits<float>::infinity())
      continue;  // nothing but masked columns so far
    Sum16 s = zero16();
    for (std::int64_t j = 0; j < n; j += width) {
      const int p = static_cast<int>(j / width) % parts;
      HWY_ALIGN float weights[numerics::lanes];
      hn::Store(exp(hn::Sub(load_some(tile + j, n - j), set(common))), Tag(), weights);
      s.part[p] = hn::Add(s.part[p], load_some(weights, n - j));
    }
    sum = std::fma(sum, kernels::exp(highest - common), total(s));
    highest = common;
  }
  return highest + static_cast<float>(std::log(static_cast<double>(sum)));
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>

#include "rose/core/error.h"

namespace rose::kernels {

// Subtract the row's log-sum-exp from the token's logit.
HWY_EXPORT(logsumexp_row);

void token_logprob(std::span<const float> logits, std::int64_t rows,
                   std::span<const std::int32_t> targets, std::span<float> out,
                   std::span<float> lse, core::ThreadPool& pool) {
  const auto n = static_cast<std::size_t>(rows);
  if (rows < 0 || targets.size() != n || out.size() != n || (!lse.empty() && lse.size() != n) ||
      (n != 0 && logits.size() % n != 0)) {
    throw core::Error(core::Code::invalid_argument, "one target and one result per row of logits")
        .in("token_logprob");
  }
  if (n == 0) return;
  const auto vocab = static_cast<std::int64_t>(logits.size() / n);
  for (const std::int32_t t : targets) {
    if (t < 0 || t >= vocab) {
      throw core::Error(core::Code::out_of_range,
                        fmt::format("token id {} is outside [0, {})", t, vocab))
          .in("targets");
    }
  }
  pool.for_range(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = logits.data() + r * vocab;
      const float sum = HWY_DYNAMIC_DISPATCH(logsumexp_row)(row, vocab);
      const auto i = static_cast<std::size_t>(r);
      out[i] = row[targets[i]] - sum;
      if (!lse.empty()) lse[i] = sum;
    }
  });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
