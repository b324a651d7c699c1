// The rungs of LayerNorm at 16,384 rows of 4,096.

#include <cmath>

#include "labs/gpu/gpu_test.h"
#include "labs/gpu/ladder.h"
#include "labs/gpu/layernorm_ladder.h"
#include "labs/gpu/rows_bench.h"
#include "rose/kernels/gpu/graph.h"
#include "rose/kernels/gpu/norm.h"

namespace {

using namespace rose::labs;
using rose::kernels::DType;
constexpr std::int64_t rows = 16'384, cols = 4096;

/// The largest difference of 16 rows, in units of 2^-7 of the value or of 1, if that is more.
double difference(gpu::Matrix a, gpu::Matrix b) {
  const auto values = [](gpu::Matrix m) {
    m.rows = 16;
    const gpu::DeviceMatrix copy(m.rows, m.cols, DType::bf16);
    gpu::cast(m, copy.view(), {});
    return copy.values();
  };
  const std::vector<float> x = values(a), y = values(b);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double unit = 0x1p-7 * std::max(1.0, std::abs(double{y[i]}));
    worst = std::max(worst, std::abs(double{x[i]} - double{y[i]}) / unit);
  }
  return worst;
}

}  // namespace

int main(int argc, char** argv) {
  const BenchArray x(2, rows, cols, DType::bf16), y(2, rows, cols, DType::bf16),
      production(1, rows, cols, DType::bf16);
  const auto ones = gpu::DeviceMatrix::of(std::vector<float>(cols, 1.0f), 1, cols, DType::bf16);
  const auto zeros = gpu::DeviceMatrix::of(std::vector<float>(cols, 0.0f), 1, cols, DType::bf16);
  const auto ours = [&](const gpu::Matrix& from, const gpu::Matrix& to, gpu::Stream s) {
    gpu::layernorm(from, ones.view(), zeros.view(), layernorm_epsilon, to, nullptr, nullptr, s);
  };
  ours(x.at(0), production.at(0), {});
  Ladder ladder{.unit = "GB/s",
                .work = 4e-9 * static_cast<double>(rows * cols),
                .copies = 2,
                .limit_name = "copy bandwidth",
                .limit = copy_bandwidth(false),
                .against = "the production kernel, 16 rows, in units of 2^-7",
                .error = 0,
                .bound = 1,
                .rungs = {},
                .library = {"cudaMemcpyAsync", "device to device, the same bytes",
                            [&](int i, gpu::Stream s) {
                              gpu::copy_on_device(y.at(i).data, x.at(i).data, 2 * rows * cols, s);
                            }},
                .version = std::to_string(gpu::device_info().runtime)};
  for (const auto& rung : layernorm_ladder()) {
    const auto launch = [&, call = rung.launch](int i, gpu::Stream s) {
      call(x.at(i), y.at(i), s);
    };
    launch(0, {});
    ladder.error = std::max(ladder.error, difference(y.at(0), production.at(0)));
    ladder.rungs.push_back({rung.name, rung.idea, launch});
  }
  const Contestant called{"production", "what everybody calls, with weight and bias",
                          [&](int i, gpu::Stream s) { ours(x.at(i), y.at(i), s); }};
  ladder.rungs.push_back(called);
  if (ladder.error > ladder.bound)
    return std::fprintf(stderr, "a rung differs by %.2f units\n", ladder.error), 1;
  return ladder_bench(argc, argv, ladder);
}
