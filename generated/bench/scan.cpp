// Scan 2^26 numbers.

#include <array>

#include "labs/gpu/ladder.h"
#include "labs/gpu/rows_bench.h"
#include "labs/gpu/scan.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  constexpr std::int64_t count = std::int64_t{1} << 26;
  std::array<gpu::Buffer, 2> in, out;
  for (int i : {0, 1}) {
    in.at(i) = gpu::Buffer(4 * count), out.at(i) = gpu::Buffer(4 * count);
    gpu::fill_random(in.at(i), rose::kernels::DType::f32, 1 + static_cast<std::uint32_t>(i));
  }
  const gpu::Buffer memory(scan_workspace(count));
  std::vector<std::uint32_t> expected = in[0].values<std::uint32_t>();
  std::uint32_t sum = 0;
  for (std::uint32_t& x : expected) sum += std::exchange(x, sum);
  const auto launch_of = [&](Scan* scan) {
    return [&, scan](int i, gpu::Stream s) {
      scan(in.at(i).as<std::uint32_t>(), count, out.at(i).as<std::uint32_t>(), memory.workspace(),
           s);
    };
  };
  std::vector<Contestant> rungs;
  for (const auto& rung : scan_ladder()) {
    rungs.push_back({rung.name, rung.idea, launch_of(rung.launch)});
    out[0].poison();
    rungs.back().launch(0, {});
    gpu::synchronize({});
    if (out[0].values<std::uint32_t>() != expected)
      return std::fprintf(stderr, "%s is wrong\n", rung.name), 1;
  }
  return ladder_bench(argc, argv,
                      {.unit = "GB/s",
                       .work = 8e-9 * count,
                       .copies = 2,
                       .limit_name = "copy bandwidth",
                       .limit = copy_bandwidth(false),
                       .against = "a loop on the host, every element",
                       .error = 0,
                       .bound = 0,
                       .rungs = std::move(rungs),
                       .library = {"CUB DeviceScan", "defaults", launch_of(scan_library())},
                       .version = std::to_string(gpu::device_info().runtime)});
}
