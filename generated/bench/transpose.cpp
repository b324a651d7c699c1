// Transpose 8,192 × 8,192 numbers beside a copy.

#include <array>

#include "labs/gpu/ladder.h"
#include "labs/gpu/rows_bench.h"
#include "labs/gpu/transpose.h"
#include "rose/kernels/gpu/graph.h"

namespace {

using namespace rose::labs;
constexpr std::int64_t side = 8192;
constexpr std::size_t bytes = std::size_t{4} * side * side;

bool turned(const gpu::Buffer& in, const gpu::Buffer& out) {
  const std::vector<float> a = in.values<float>(), b = out.values<float>();
  for (std::size_t r = 0; r < side; ++r) {
    for (std::size_t c = 0; c < side; ++c) {
      if (a[r * side + c] != b[c * side + r]) return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::array<gpu::Buffer, 2> in, out;
  for (int i : {0, 1}) {
    in.at(i) = gpu::Buffer(bytes), out.at(i) = gpu::Buffer(bytes);
    gpu::fill_random(in.at(i), rose::kernels::DType::f32, 1 + static_cast<std::uint32_t>(i));
  }
  std::vector<Contestant> rungs;
  for (const auto& rung : transpose_ladder()) {
    const auto launch = [&, turn = rung.launch](int i, gpu::Stream s) {
      turn(in.at(i).as<float>(), out.at(i).as<float>(), side, side, s);
    };
    out[0].poison();
    launch(0, {});
    gpu::synchronize({});
    if (!turned(in[0], out[0])) return std::fprintf(stderr, "%s is wrong\n", rung.name), 1;
    rungs.push_back({rung.name, rung.idea, launch});
  }
  return ladder_bench(argc, argv,
                      {.unit = "GB/s",
                       .work = 2e-9 * bytes,
                       .copies = 2,
                       .limit_name = "copy bandwidth",
                       .limit = copy_bandwidth(false),
                       .against = "a loop on the host, every element",
                       .error = 0,
                       .bound = 0,
                       .rungs = std::move(rungs),
                       .library = {"cudaMemcpyAsync", "device to device, the same bytes",
                                   [&](int i, gpu::Stream s) {
                                     gpu::copy_on_device(out.at(i).data(), in.at(i).data(), bytes,
                                                         s);
                                   }},
                       .version = std::to_string(gpu::device_info().runtime)});
}
