// Keep half of 2^26 numbers.

#include <array>

#include "labs/gpu/ladder.h"
#include "labs/gpu/rows_bench.h"
#include "labs/gpu/scan.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  constexpr std::int64_t count = std::int64_t{1} << 26;
  std::vector<std::uint32_t> x(static_cast<std::size_t>(count)), expected;
  rose::core::Rng rng(1);
  for (std::uint32_t& value : x) value = rng.below(2) == 0 ? 0 : 1 + rng.next() % 1'000'000u;
  std::copy_if(x.begin(), x.end(), std::back_inserter(expected), [](auto v) { return v != 0; });
  std::array<gpu::Buffer, 2> in, out;
  for (int i : {0, 1}) {
    in.at(i) = gpu::Buffer::of(std::span<const std::uint32_t>(x));
    out.at(i) = gpu::Buffer(4 * count);
  }
  const gpu::Buffer memory(compact_workspace(count)), kept(4);
  const auto launch_of = [&](Compact* compact) {
    return [&, compact](int i, gpu::Stream s) {
      compact(in.at(i).as<std::uint32_t>(), count, out.at(i).as<std::uint32_t>(),
              kept.as<std::uint32_t>(), memory.workspace(), s);
    };
  };
  std::vector<Contestant> rungs;
  for (const auto& rung : compact_ladder()) {
    rungs.push_back({rung.name, rung.idea, launch_of(rung.launch)});
    rungs.back().launch(0, {});
    gpu::synchronize({});
    auto result = out[0].values<std::uint32_t>();
    result.resize(kept.values<std::uint32_t>()[0]);
    if (result != expected) return std::fprintf(stderr, "%s is wrong\n", rung.name), 1;
  }
  return ladder_bench(
      argc, argv,
      {.unit = "GB/s",
       .work = 4e-9 * static_cast<double>(count + static_cast<std::int64_t>(expected.size())),
       .copies = 2,
       .limit_name = "copy bandwidth",
       .limit = copy_bandwidth(true),
       .against = "a loop on the host, every element",
       .error = 0,
       .bound = 0,
       .rungs = std::move(rungs),
       .library = {"CUB DeviceSelect", "defaults", launch_of(compact_library())},
       .version = std::to_string(gpu::device_info().runtime)});
}
