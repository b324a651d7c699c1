// The numerics contract, measured.

#include <array>
#include <cstdio>
#include <map>
#include <string>

#include "benchmarks/harness/bench.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/linear_paths.h"
#include "rose/kernels/gpu/self_test.h"

int main() {
  using namespace rose::kernels::gpu;
  if (!available()) {
    std::fputs("numerics-contract: there is no GPU\n", stderr);
    return 1;
  }
  const SelfTest test = self_test(Extent::full);
  std::map<std::string, std::array<std::int64_t, 3>> paths;  // comparisons, outputs, differing
  std::int64_t differing = 0;
  for (const BitCase& one : test.cases) {
    auto& sum = paths[one.path.substr(0, one.path.find(','))];
    sum[0] += 1;
    sum[1] += one.outputs;
    sum[2] += one.differing;
    differing += one.differing;
    if (one.differing != 0) {
      std::fprintf(stderr, "differs: %s, %s: %ld of %ld\n", one.path.c_str(), one.shape.c_str(),
                   static_cast<long>(one.differing), static_cast<long>(one.outputs));
    }
  }
  for (const auto& [path, sum] : paths) {
    std::fprintf(stderr, "%s: %ld comparisons, %ld outputs, %ld differ\n", path.c_str(),
                 static_cast<long>(sum[0]), static_cast<long>(sum[1]), static_cast<long>(sum[2]));
  }
  std::map<std::string, std::array<std::int64_t, 3>> older;
  for (const BitCase& one : test.others) {
    auto& sum = older[one.path];
    sum[0] += 1;
    sum[1] += one.outputs;
    sum[2] += one.differing;
  }
  for (const auto& [path, sum] : older) {
    std::fprintf(stderr, "not trusted: %s: %ld comparisons, %ld outputs, %ld differ\n",
                 path.c_str(), static_cast<long>(sum[0]), static_cast<long>(sum[1]),
                 static_cast<long>(sum[2]));
  }
  for (const BitCase& one : test.emulated) {
    std::fprintf(stderr, "emulation, %s, %s: %ld of %ld differ\n", one.path.c_str(),
                 one.shape.c_str(), static_cast<long>(one.differing),
                 static_cast<long>(one.outputs));
  }
  boost::json::array splits;
  for (const SplitShape& shape : test.splits) {
    std::fprintf(stderr, "the library would split: M %ld, N %ld, K %ld in %d\n",
                 static_cast<long>(shape.m), static_cast<long>(shape.n), static_cast<long>(shape.k),
                 shape.pieces);
    splits.push_back({{"m", shape.m}, {"n", shape.n}, {"k", shape.k}, {"pieces", shape.pieces}});
  }
  boost::json::object counted;
  for (const auto& [path, sum] : paths) {
    counted[path] = {{"comparisons", sum[0]}, {"outputs", sum[1]}, {"differing", sum[2]}};
  }
  boost::json::object record{{"metric", "differing outputs"},
                             {"unit", "outputs"},
                             {"better", "lower"},
                             {"samples", 1},
                             {"warmup", 0},
                             {"correct",
                              {{"against", "one warp's ascending loop of mma.sync, bit for bit"},
                               {"error", differing},
                               {"bound", 0}}},
                             {"config",
                              {{"paths", std::move(counted)},
                               {"library_would_split", std::move(splits)},
                               {"device", device_info().name},
                               {"cublaslt", linear_paths::library_version()}}}};
  rose::bench::detail::put_values(record, {static_cast<double>(differing)});
  rose::bench::detail::print(record);
  return test.canonical() ? 0 : 1;
}
