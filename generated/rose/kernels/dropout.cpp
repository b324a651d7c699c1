// Leave some numbers out, on a CPU.

#include "rose/kernels/dropout.h"

#include "rose/core/error.h"
#include "rose/core/rng.h"

namespace rose::kernels {

void dropout(std::span<const float> x, const Dropout& how, std::uint64_t first, std::span<float> y,
             core::ThreadPool& pool) {
  if (x.size() != y.size() || !(how.rate >= 0 && how.rate < 1))
    throw core::Error(core::Code::invalid_argument, "x and y differ in size, or a rate is no share")
        .in("dropout");
  constexpr std::int64_t grain = 4096;
  const std::uint32_t threshold = how.threshold();
  const float factor = how.factor();
  pool.for_range(static_cast<std::int64_t>(x.size()), grain,
                 [&](std::int64_t begin, std::int64_t end) {
                   const auto from = static_cast<std::uint64_t>(begin);
                   core::Rng rng(how.seed, how.stream, first + from);
                   for (auto i = from; i < static_cast<std::uint64_t>(end); ++i)
                     y[i] = rng.next() < threshold ? 0.0f : x[i] * factor;
                 });
}

}  // namespace rose::kernels
