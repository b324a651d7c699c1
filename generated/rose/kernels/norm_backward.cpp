// Norms, backward.

#include "rose/kernels/norm_backward.h"

#include <fmt/format.h>

#include "rose/core/error.h"

#include "rose/kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "rose/kernels/norm_backward.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "rose/kernels/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace rose::kernels::HWY_NAMESPACE {

// dw[c] += sum over rows of dy * (x - mean) * inv, db[c] += sum of dy; mean and db may be null.
void norm_weight(const float* x, const float* dy, const float* mean, const float* inv,
                 std::int64_t m, std::int64_t c, float* dw, float* db, core::ThreadPool& pool) {
  pool.for_range(c, 64, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t j = begin; j < end; j += width) {
      const std::int64_t n = end - j;
      Vec weight = set(0.0f), bias = weight;
      for (std::int64_t i = 0; i < m; ++i) {
        Vec hat = load_some(x + i * c + j, n);
        if (mean != nullptr) hat = hn::Sub(hat, set(mean[i]));
        const Vec g = load_some(dy + i * c + j, n);
        weight = fma(g, hn::Mul(hat, set(inv[i])), weight);
        bias = hn::Add(bias, g);
      }
      store_some(hn::Add(load_some(dw + j, n), weight), dw + j, n);
      if (db != nullptr) store_some(hn::Add(load_some(db + j, n), bias), db + j, n);
    }
  });
}

// Remove from each row what the norm cannot see.
void norm_rows(const float* x, const float* w, const float* dy, const float* mean, const float* inv,
               std::int64_t m, std::int64_t c, float* dx, bool add, core::ThreadPool& pool) {
  pool.for_range(m, 1, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* xr = x + i * c;
      const float* gr = dy + i * c;
      float* out = dx + i * c;
      const Vec mu = set(mean != nullptr ? mean[i] : 0.0f), r = set(inv[i]);
      const auto hat_at = [&](std::int64_t j) HWY_ATTR {
        return hn::Mul(hn::Sub(load_some(xr + j, c - j), mu), r);
      };
      const auto g_at = [&](std::int64_t j) HWY_ATTR {
        return hn::Mul(load_some(gr + j, c - j), load_some(w + j, c - j));
      };
      Sum16 sum_g = zero16(), sum_gh = zero16();
      for (std::int64_t j = 0; j < c; j += width) {
        const std::int64_t part = j / width % parts;
        const Vec g = g_at(j);  // zero beyond the row, so that the sums may run to a whole vector
        sum_g.part[part] = hn::Add(sum_g.part[part], g);
        sum_gh.part[part] = fma(g, hat_at(j), sum_gh.part[part]);
      }
      const auto count = static_cast<float>(c);
      const Vec g_mean = set(mean != nullptr ? total(sum_g) / count : 0.0f),
                gh_mean = set(total(sum_gh) / count);
      for (std::int64_t j = 0; j < c; j += width) {
        Vec d = hn::Mul(r, fma(hn::Neg(hat_at(j)), gh_mean, hn::Sub(g_at(j), g_mean)));
        if (add) d = hn::Add(load_some(out + j, c - j), d);
        store_some(d, out + j, c - j);
      }
    }
  });
}

}  // namespace rose::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rose::kernels {
namespace {

HWY_EXPORT(norm_weight);
HWY_EXPORT(norm_rows);

}  // namespace

// One implementation for both norms.
void rmsnorm_backward(std::span<const float> x, std::int64_t m, std::span<const float> weight,
                      std::span<const float> inv_rms, std::span<const float> dy,
                      std::span<float> dx, Into into, std::span<float> dweight,
                      core::ThreadPool& pool) {
  layernorm_backward(x, m, weight, {}, inv_rms, dy, dx, into, dweight, {}, pool);
}

void layernorm_backward(std::span<const float> x, std::int64_t m, std::span<const float> weight,
                        std::span<const float> mean, std::span<const float> inv_std,
                        std::span<const float> dy, std::span<float> dx, Into into,
                        std::span<float> dweight, std::span<float> dbias, core::ThreadPool& pool) {
  const auto c = static_cast<std::int64_t>(weight.size()), n = m * c;
  const auto expect = [](std::size_t have, std::int64_t want, const char* what) {
    if (have == static_cast<std::size_t>(want)) return;
    throw core::Error(core::Code::invalid_argument,
                      fmt::format("{} has {} elements, expected {}", what, have, want))
        .in("norm_backward");
  };
  expect(x.size(), n, "x");
  expect(dy.size(), n, "dy");
  expect(dx.size(), n, "dx");
  expect(inv_std.size(), m, "inverse deviations");
  if (!dweight.empty()) expect(dweight.size(), c, "dweight");
  if (!mean.empty()) expect(mean.size(), m, "means");
  if (!dbias.empty()) expect(dbias.size(), c, "dbias");
  const float* means = mean.empty() ? nullptr : mean.data();
  if (!dweight.empty()) {
    HWY_DYNAMIC_DISPATCH(norm_weight)
    (x.data(), dy.data(), means, inv_std.data(), m, c, dweight.data(),
     dbias.empty() ? nullptr : dbias.data(), pool);
  }
  HWY_DYNAMIC_DISPATCH(norm_rows)
  (x.data(), weight.data(), dy.data(), means, inv_std.data(), m, c, dx.data(), into == Into::add,
   pool);
}

}  // namespace rose::kernels
#endif  // HWY_ONCE
