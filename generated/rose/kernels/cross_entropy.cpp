// Cross-entropy, forward and backward.

#include "rose/kernels/cross_entropy.h"

#include <algorithm>

#include "rose/core/error.h"
#include "rose/kernels/logprob.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/cross_entropy.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// row becomes scale * exp(row - lse).
void scaled_softmax(float* row, std::int64_t columns, float lse, float scale) {
  const Vec top = set(lse), factor = set(scale);
  for (std::int64_t j = 0; j < columns; j += width) {
    const Vec p = exp(hn::Sub(load_some(row + j, columns - j), top));
    store_some(hn::Mul(factor, p), row + j, columns - j);
  }
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::kernels {
namespace {

HWY_EXPORT(scaled_softmax);

}  // namespace

// Take the losses from the scoring kernel, then overwrite.
void cross_entropy(std::span<float> logits, std::int64_t rows,
                   std::span<const std::int32_t> targets, float scale, std::span<float> losses,
                   core::ThreadPool& pool, std::vector<float>& scratch) {
  const auto count = static_cast<std::size_t>(rows);
  if (targets.size() != count || losses.size() != count) {
    throw core::Error(core::Code::invalid_argument,
                      "there must be one target and one loss per row of logits")
        .in("cross_entropy");
  }
  if (rows == 0) return;
  const std::int64_t columns = static_cast<std::int64_t>(logits.size()) / rows;
  if (scratch.size() < count) scratch.resize(count);
  const std::span<float> lse(scratch.data(), count);
  std::vector<std::int32_t> scored(targets.begin(), targets.end());
  for (std::int32_t& target : scored) target = std::max(target, 0);
  token_logprob(logits, rows, scored, losses, lse, pool);
  pool.for_range(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto at = static_cast<std::size_t>(r);
      float* row = logits.data() + r * columns;
      if (targets[at] < 0) {
        losses[at] = 0.0f;
        std::fill(row, row + columns, 0.0f);
        continue;
      }
      losses[at] = -losses[at];
      HWY_DYNAMIC_DISPATCH(scaled_softmax)(row, columns, lse[at], scale);
      row[targets[at]] -= scale;
    }
  });
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
