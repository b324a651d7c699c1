// The rungs at 16,384 rows of 4,096.

#include "labs/gpu/gpu_test.h"
#include "labs/gpu/ladder.h"
#include "labs/gpu/rows_bench.h"
#include "labs/gpu/softmax_ladder.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/softmax.h"

namespace {

using namespace rose::labs;

// Compare each rung with the production kernel, and time it.

/// The largest difference from the production kernel, in units of the last place of bf16.
double difference(const gpu::Matrix& a, const gpu::Matrix& b) {
  const auto values = [](gpu::Matrix m) {
    m.rows = 16;
    const gpu::DeviceMatrix copy(m.rows, m.cols, rose::kernels::DType::bf16);
    gpu::cast(m, copy.view(), {});
    return copy.values();
  };
  const std::vector<float> x = values(a), y = values(b);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(double{x[i]} - double{y[i]}) / (0x1p-7 * double{y[i]}));
  return worst;
}

int bench_softmax_rungs(int argc, char** argv, std::int64_t rows, std::int64_t cols) {
  using rose::kernels::DType;
  const BenchArray x(2, rows, cols, DType::bf16), y(2, rows, cols, DType::bf16),
      production(1, rows, cols, DType::bf16);
  gpu::softmax(x.at(0), production.at(0), {});
  Ladder ladder{.unit = "GB/s",
                .work = 4e-9 * static_cast<double>(rows * cols),
                .copies = 2,
                .limit_name = "copy bandwidth",
                .limit = copy_bandwidth(false),
                .against = "the production kernel, 16 rows, in units of the last place of bf16",
                .error = 0,
                .bound = 1,
                .rungs = {},
                .library = {"cudaMemcpyAsync", "device to device, the same bytes",
                            [&](int i, gpu::Stream s) {
                              gpu::copy_on_device(y.at(i).data, x.at(i).data,
                                                  static_cast<std::size_t>(2 * rows * cols), s);
                            }},
                .version = std::to_string(gpu::device_info().runtime)};
  for (const auto& rung : softmax_ladder()) {
    const std::string_view name = rung.name;
    if ((name == "registers" && cols > softmax_held) || (name == "thread" && cols > 8192)) continue;
    const auto launch = [&, call = rung.launch](int i, gpu::Stream s) {
      call(x.at(i), y.at(i), s);
    };
    launch(0, {});
    ladder.error = std::max(ladder.error, difference(y.at(0), production.at(0)));
    ladder.rungs.push_back({rung.name, rung.idea, launch});
  }
  const Contestant ours{"production", "what everybody calls",
                        [&](int i, gpu::Stream s) { gpu::softmax(x.at(i), y.at(i), s); }};
  ladder.rungs.insert(ladder.rungs.end() - 1, ours);  // the last one is the best
  if (ladder.error > ladder.bound)
    return std::fprintf(stderr, "a rung differs by %.2f units\n", ladder.error), 1;
  return ladder_bench(argc, argv, ladder);
}

}  // namespace

int main(int argc, char** argv) {
  return bench_softmax_rungs(argc, argv, 16'384, 4096);
}
