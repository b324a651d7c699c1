// Cast a row of numbers.

#include "rose/kernels/cast.h"

#include "rose/core/error.h"
#include "rose/core/rng.h"

namespace rose::kernels {
namespace {

constexpr std::int64_t kGrain = 4096;

void expect_equal(std::size_t x, std::size_t y) {
  if (x == y) return;
  throw core::Error(core::Code::invalid_argument, "x and y differ in size").in("cast");
}

}  // namespace

void to_bf16(std::span<const float> x, std::span<bf16> y, core::ThreadPool& pool) {
  expect_equal(x.size(), y.size());
  pool.for_range(
      static_cast<std::int64_t>(x.size()), kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
          y[i] = to_bf16(x[i]);
      });
}

void to_bf16_stochastic(std::span<const float> x, const RoundingKey& key, std::span<bf16> y,
                        core::ThreadPool& pool) {
  expect_equal(x.size(), y.size());
  pool.for_range(static_cast<std::int64_t>(x.size()), kGrain,
                 [&](std::int64_t begin, std::int64_t end) {
                   core::Rng rng(key.seed, rounding_stream(key));
                   for (std::int64_t i = begin; i < end; ++i) {
                     const auto element = static_cast<std::uint64_t>(key.first_element + i);
                     rng.seek(element / 2);
                     const std::uint32_t word = rng.next();
                     const auto at = static_cast<std::size_t>(i);
                     y[at] = to_bf16_stochastic(x[at], element % 2 == 0 ? word : word >> 16);
                   }
                 });
}

}  // namespace rose::kernels
