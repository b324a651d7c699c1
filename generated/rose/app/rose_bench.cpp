// Print what the kernels reach on this machine.

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "rose/app/rose_commands.h"
#include "rose/core/error.h"
#include "rose/kernels/gpu/instruments.h"
#include "rose/kernels/gpu/linear.h"

namespace rose::app {

namespace {

struct Layer {
  const char* name;
  std::int64_t m, n, k;
};
constexpr std::array layers = {
    Layer{"large product", 8192, 8192, 8192},
    Layer{"GPT-2, feed-forward up", 16384, 3072, 768},
    Layer{"GPT-2, feed-forward down", 16384, 768, 3072},
    Layer{"0.6B, q k v, one row", 1, 4096, 1024},
    Layer{"0.6B, down, 16 rows", 16, 1024, 3072},
    Layer{"0.6B, gate and up, 64 rows", 64, 6144, 1024},
    Layer{"0.6B, head, 32 rows", 32, 151936, 1024},
    Layer{"8B, down, 16 rows", 16, 4096, 14336},
    Layer{"8B, gate and up, 128 rows", 128, 28672, 4096},
    Layer{"8B, down, 4096 rows", 4096, 4096, 14336},
};

void bench_kernels() {
  namespace gpu = kernels::gpu;
  if (!gpu::available()) gpu::no_cuda("benching kernels");
  const gpu::DeviceInfo device = gpu::device_info();
  const gpu::Bandwidth bandwidth = gpu::measure_bandwidth();
  print(fmt::format("{}: read {:.2f}, copy {:.2f}, write {:.2f} TB/s\n", device.name,
                    1e-12 * bandwidth.read, 1e-12 * bandwidth.copy, 1e-12 * bandwidth.write));
  gpu::Ceilings ceilings{.flops = 0, .bytes = bandwidth.read};
  constexpr int samples = 11;
  for (const Layer& layer : layers) {
    const gpu::LinearPlan plan = gpu::measure_linear({.m = layer.m, .n = layer.n, .k = layer.k});
    const double us =
        gpu::time_linear(plan.shape, std::span(&plan, 1), samples).front().timing.median_us;
    const gpu::Cost cost =
        gpu::linear_cost(static_cast<double>(layer.m), static_cast<double>(layer.n),
                         static_cast<double>(layer.k), 2, 2);
    ceilings.flops =
        std::max(ceilings.flops, 1e6 * cost.flops / us);  // the first is the largest product
    print(
        fmt::format("{:28} {:9.2f} us {:6.2f} TB/s {:6.0f} Tflop/s {:4.0f} % of the roofline  {}\n",
                    layer.name, us, 1e-6 * cost.bytes / us, 1e-6 * cost.flops / us,
                    100 * gpu::floor_us(cost, ceilings) / us, plan.describe()));
  }
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand("bench", "Measure this machine");
  command->require_subcommand(1);
  command->add_subcommand("kernels", "Linear layers on the GPU, beside their roofline")
      ->callback(bench_kernels);
}

}  // namespace rose::app
