// fp32 beside the library.

#include <array>
#include <cstdio>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "rose/kernels/gpu/linear.h"
#include "rose/kernels/gpu/linear_paths.h"

int main() {
  using namespace rose::kernels;
  using namespace rose::kernels::gpu;
  if (!available()) {
    std::fputs("gemm-fp32-4096: there is no GPU\n", stderr);
    return 1;
  }
  const LinearShape shape{.m = 4096, .n = 4096, .k = 4096, .in = DType::f32, .out = DType::f32};
  const std::vector<LinearPlan> proposals = linear_paths::library_plans(shape, 16, true);
  if (proposals.empty()) return 1;
  constexpr int tries = 5, samples = 21;
  LinearPlan peer = proposals.front();
  double least = 0;
  for (const TimedLinear& timed : time_linear(shape, proposals, tries)) {
    if (least != 0 && timed.timing.median_us >= least) continue;
    least = timed.timing.median_us;
    peer = timed.plan;
  }
  const std::array<LinearPlan, 3> pair{measure_linear(shape), peer, plan_linear(shape)};
  const std::vector<TimedLinear> timed = time_linear(shape, pair, samples);
  const Cost cost = linear_cost(4096, 4096, 4096, 4, 4);
  std::fprintf(stderr, "ours %.1f us (%s), %.1f Tflop/s; library %.1f us; by rules %.1f us\n",
               timed[0].timing.median_us, timed[0].plan.describe().c_str(),
               1e-6 * cost.flops / timed[0].timing.median_us, timed[1].timing.median_us,
               timed[2].timing.median_us);
  boost::json::object record{{"metric", "time"},
                             {"unit", "us"},
                             {"better", "lower"},
                             {"samples", samples},
                             {"warmup", 2},
                             {"config",
                              {{"flops", cost.flops},
                               {"device", device_info().name},
                               {"path", timed[0].plan.describe()}}}};
  rose::bench::detail::put_values(record, timed[0].timing.samples_us);
  boost::json::object other{{"name", "cuBLASLt"},
                            {"version", std::to_string(linear_paths::library_version())},
                            {"settings", "fp32 without TF32, the fastest of 16 proposals"}};
  rose::bench::detail::put_values(other, timed[1].timing.samples_us);
  record["peer"] = std::move(other);
  rose::bench::detail::print(record);
  return 0;
}
