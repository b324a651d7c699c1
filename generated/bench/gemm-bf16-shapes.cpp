// Twenty real shapes beside the library at its best.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/linear_paths.h"

namespace {

using namespace rose::kernels::gpu;

// M, N, K.
constexpr std::array<std::array<std::int64_t, 3>, 20> shapes{
    {{16384, 2304, 768}, {16384, 3072, 768}, {16384, 768, 3072}, {4096, 50304, 768},  // GPT-2
     {1, 4096, 1024},    {1, 1024, 3072},    {8, 6144, 1024},    {16, 1024, 2048},
     {16, 1024, 3072},  // Qwen3-0.6B
     {32, 151936, 1024}, {64, 6144, 1024},   {64, 1024, 3072},   {256, 4096, 1024},
     {2048, 6144, 1024}, {8192, 1024, 3072}, {1, 6144, 4096},    {16, 4096, 14336},
     {64, 4096, 4096},   {128, 28672, 4096}, {4096, 4096, 14336}}};  // 8B

const TimedLinear& fastest(const std::vector<TimedLinear>& timed) {
  return *std::min_element(timed.begin(), timed.end(),
                           [](const TimedLinear& a, const TimedLinear& b) {
                             return a.timing.median_us < b.timing.median_us;
                           });
}

}  // namespace

int main() {
  if (!available()) {
    std::fputs("gemm-bf16-shapes: there is no GPU\n", stderr);
    return 1;
  }
  const DeviceInfo device = device_info();
  constexpr int samples = 21, tries = 7;
  std::vector<std::vector<double>> ours, theirs;
  boost::json::array rows;
  for (const auto& [m, n, k] : shapes) {
    const LinearShape shape{.m = m, .n = n, .k = k};
    const std::vector<LinearPlan> candidates = linear_candidates(shape, true);
    std::vector<TimedLinear> mine = time_linear(shape, candidates, tries);
    const LinearPlan best = fastest(mine).plan;
    const std::vector<LinearPlan> proposals = linear_paths::library_plans(shape, 16, true);
    const LinearPlan peer = fastest(time_linear(shape, proposals, tries)).plan;
    const std::array<LinearPlan, 3> pair{best, peer, plan_linear(shape)};
    const std::vector<TimedLinear> timed = time_linear(shape, pair, samples);
    const double us = timed[0].timing.median_us, peer_us = timed[1].timing.median_us;
    ours.push_back(timed[0].timing.samples_us);
    theirs.push_back(timed[1].timing.samples_us);
    const Cost cost =
        linear_cost(static_cast<double>(m), static_cast<double>(n), static_cast<double>(k), 2, 2);
    std::fprintf(stderr,
                 "M %5ld N %6ld K %5ld: ours %8.2f us (%s), library %8.2f us (%d pieces), ratio "
                 "%.3f; by rules %8.2f us (%s); %.2f TB/s %.0f Tflop/s\n",
                 static_cast<long>(m), static_cast<long>(n), static_cast<long>(k), us,
                 best.describe().c_str(), peer_us, linear_paths::library_splits(peer), peer_us / us,
                 timed[2].timing.median_us, pair[2].describe().c_str(), 1e-6 * cost.bytes / us,
                 1e-6 * cost.flops / us);
    std::sort(mine.begin(), mine.end(), [](const TimedLinear& a, const TimedLinear& b) {
      return a.timing.median_us < b.timing.median_us;
    });
    for (std::size_t i = 0; i < std::min<std::size_t>(mine.size(), 12); ++i) {
      std::fprintf(stderr, "      %8.2f us %s\n", mine[i].timing.median_us,
                   mine[i].plan.describe().c_str());
    }
    rows.push_back(boost::json::object{{"m", m},
                                       {"n", n},
                                       {"k", k},
                                       {"us", us},
                                       {"peer_us", peer_us},
                                       {"ratio", peer_us / us},
                                       {"path", best.describe()},
                                       {"peer_pieces", linear_paths::library_splits(peer)}});
  }
  const auto means = [&](const std::vector<std::vector<double>>& all) {
    std::vector<double> mean(samples, 0.0);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      for (const auto& of_shape : all)
        mean[i] += std::log(of_shape[i]) / static_cast<double>(all.size());
      mean[i] = std::exp(mean[i]);
    }
    return mean;
  };
  boost::json::object record{{"metric", "time"},
                             {"unit", "us"},
                             {"better", "lower"},
                             {"samples", samples},
                             {"warmup", 2},
                             {"correct",
                              {{"against", "the plain ascending loop, bit for bit, before timing"},
                               {"error", 0},
                               {"bound", 0}}},
                             {"config",
                              {{"statistic", "geometric mean over the shapes"},
                               {"shapes", std::move(rows)},
                               {"device", device.name}}}};
  rose::bench::detail::put_values(record, means(ours));
  boost::json::object peer{
      {"name", "cuBLASLt"},
      {"version", std::to_string(linear_paths::library_version())},
      {"settings", "the fastest of 16 proposals for each shape, K may be split"}};
  rose::bench::detail::put_values(peer, means(theirs));
  record["peer"] = std::move(peer);
  rose::bench::detail::print(record);
  return 0;
}
