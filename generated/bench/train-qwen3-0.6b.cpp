// A training step of Qwen3-0.6B.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "benchmarks/harness/bench.h"
#include "labs/training/gpu_steps.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (!kernels::gpu::available()) {
    std::fputs("train-qwen3-0.6b: there is no GPU\n", stderr);
    return 1;
  }
  constexpr std::int64_t rows = 8, context = 4096;
  constexpr double peak = 989e12;
  const bool measured = std::getenv("ROSE_UNMEASURED") == nullptr;
  labs::GpuSteps steps(
      labs::qwen3_600m(), rows, context,
      {.head_rows = 4096, .recompute = model::Recompute::nothing, .measured = measured});
  const double loss = steps.step();
  if (!(std::abs(loss - std::log(151936.0)) < 0.7)) {
    std::fprintf(stderr, "a fresh model's loss is %f\n", loss);
    return 1;
  }
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--table") steps.print_table();
  }
  return bench::run(
      argc, argv,
      {.metric = "utilisation",
       .unit = "%",
       .better = "higher",
       .extra = {{"config",
                  {{"shape", "Qwen3-0.6B, random weights"},
                   {"rows", rows},
                   {"context", context},
                   {"precision", "bf16, fp32 masters, moments and gradients"},
                   {"flops_per_token", steps.flops()},
                   {"flop_convention", "6 N of matrices and head, 6 L H D T of causal attention"},
                   {"peak_flops", peak},
                   {"laws", "on"}}},
                 {"seed", 7}},
       .samples = 9,
       .warmup = 2},
      [&] { return 100 * steps.rate(3) * steps.flops() / peak; });
}
