// Add up 2^28 numbers.

#include <cmath>

#include "labs/gpu/ladder.h"
#include "labs/gpu/reduce.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  constexpr std::int64_t count = std::int64_t{1} << 28;
  gpu::Buffer in(4 * count), out(4), memory(reduce_workspace(count));
  gpu::fill_random(in, rose::kernels::DType::f32, 1);
  double exact = 0, sizes = 0, error = 0;
  for (const float x : in.values<float>()) exact += x, sizes += std::fabs(x);
  // The longest chain: 2^28 numbers over a full grid of 256 x 1,056 threads with four sums each, then trees.
  const double bound = 400 * 0x1p-24 * sizes;
  std::vector<Contestant> rungs;
  const auto launch_of = [&](Reduce* reduce) {
    return [&, reduce](int, gpu::Stream s) {
      reduce(in.as<float>(), count, out.as<float>(), memory.workspace(), s);
    };
  };
  for (const auto& rung : reduce_ladder()) {
    rungs.push_back({rung.name, rung.idea, launch_of(rung.launch)});
    out.poison();
    rungs.back().launch(0, {});
    gpu::synchronize({});
    error = std::fmax(error, std::fabs(static_cast<double>(out.values<float>()[0]) - exact));
    if (!(error <= bound)) return std::fprintf(stderr, "%s is wrong\n", rung.name), 1;
  }
  return ladder_bench(argc, argv,
                      {.unit = "GB/s",
                       .work = 4e-9 * count,
                       .copies = 1,
                       .limit_name = "read bandwidth",
                       .limit = gpu::measure_bandwidth().read / 1e9,
                       .against = "a sum in double precision",
                       .error = error,
                       .bound = bound,
                       .rungs = std::move(rungs),
                       .library = {"CUB DeviceReduce", "defaults", launch_of(reduce_library())},
                       .version = std::to_string(gpu::device_info().runtime)});
}
