// The rungs of SwiGLU.

#include "labs/gpu/ladder.h"
#include "labs/gpu/rows_bench.h"
#include "labs/gpu/swiglu_ladder.h"
#include "rose/kernels/gpu/graph.h"

int main(int argc, char** argv) {
  using namespace rose::labs;
  using rose::kernels::DType;
  constexpr std::int64_t rows = 16'384, cols = 4096, count = rows * cols;
  const BenchArray gate(2, rows, cols, DType::bf16), up(2, rows, cols, DType::bf16),
      between(2, rows, cols, DType::bf16);
  std::array<gpu::Buffer, 2> out{gpu::Buffer(2 * count), gpu::Buffer(2 * count)};
  std::array<gpu::Buffer, 4> copied;  // for the peer: three halves of an array, from and to
  for (gpu::Buffer& buffer : copied) buffer = gpu::Buffer(3 * count);
  gpu::fill_random(copied[0], DType::bf16, 1);
  gpu::fill_random(copied[1], DType::bf16, 2);
  Ladder ladder{.unit = "GB/s",
                .work = 1e-9 * swiglu_fused_bytes * count,
                .copies = 2,
                .limit_name = "copy bandwidth",
                .limit = copy_bandwidth(true),
                .against = "the first rung, every bit; and double precision in the tests",
                .error = 0,
                .bound = 0,
                .rungs = {},
                .library = {"cudaMemcpyAsync", "device to device, as many bytes",
                            [&](int i, gpu::Stream s) {
                              const auto at = static_cast<std::size_t>(i);
                              gpu::copy_on_device(copied.at(2 + at).data(), copied.at(at).data(),
                                                  3 * count, s);
                            }},
                .version = std::to_string(gpu::device_info().runtime)};
  std::vector<std::uint16_t> first;
  for (const auto& rung : swiglu_ladder()) {
    const auto launch = [&, call = rung.launch](int i, gpu::Stream s) {
      call(gate.at(i).data, up.at(i).data, between.at(i).data,
           out.at(static_cast<std::size_t>(i)).data(), count, s);
    };
    out[0].poison();
    launch(0, {});
    gpu::synchronize({});
    const auto y = out[0].values<std::uint16_t>();
    if (first.empty()) first = y;
    if (y != first) return std::fprintf(stderr, "%s has other bits\n", rung.name), 1;
    ladder.rungs.push_back({rung.name, rung.idea, launch});
  }
  return ladder_bench(argc, argv, ladder);
}
