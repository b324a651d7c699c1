// Cross-entropy with a factor for each row.

#include "rose/kernels/weighted_cross_entropy.h"

#include <algorithm>

#include "rose/core/error.h"
#include "rose/kernels/logprob.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/weighted_cross_entropy.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// row becomes factor * exp(row - lse).
void softmax_times(float* row, std::int64_t columns, float lse, float factor) {
  const Vec top = set(lse), by = set(factor);
  for (std::int64_t j = 0; j < columns; j += width) {
    const Vec p = exp(hn::Sub(load_some(row + j, columns - j), top));
    store_some(hn::Mul(by, p), row + j, columns - j);
  }
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::kernels {

// Take the scores from the scoring kernel, then overwrite.
HWY_EXPORT(softmax_times);

void weighted_cross_entropy(std::span<float> logits, std::int64_t rows,
                            std::span<const std::int32_t> targets, std::span<const float> scales,
                            float z, std::span<float> logprobs, std::span<float> lse,
                            core::ThreadPool& pool) {
  const auto count = static_cast<std::size_t>(rows);
  if (targets.size() != count || scales.size() != count || logprobs.size() != count ||
      lse.size() != count) {
    throw core::Error(core::Code::invalid_argument,
                      "each row needs one target, one scale, one logprob and one log-sum-exp")
        .in("weighted_cross_entropy");
  }
  if (rows == 0) return;
  const std::int64_t columns = static_cast<std::int64_t>(logits.size()) / rows;
  token_logprob(logits, rows, targets, logprobs, lse, pool);
  pool.for_range(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto at = static_cast<std::size_t>(r);
      float* row = logits.data() + r * columns;
      const float slope = 1.0f + (2.0f * z) * lse[at];
      HWY_DYNAMIC_DISPATCH(softmax_times)(row, columns, lse[at], scales[at] * slope);
      row[targets[at]] -= scales[at];
    }
  });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
