// What determinism costs a training step.

#include <cstdio>

#include "benchmarks/harness/bench.h"
#include "labs/training/gpu_steps.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (!kernels::gpu::available()) {
    std::fputs("train-deterministic-cost: there is no GPU\n", stderr);
    return 1;
  }
  constexpr std::int64_t rows = 64, context = 1024;
  const trainer::GpuComputeOptions fixed{.recompute = model::Recompute::nothing, .measured = true};
  trainer::GpuComputeOptions free = fixed;
  free.free = true;
  labs::GpuSteps ours(labs::gpt2_124m(), rows, context, fixed),
      theirs(labs::gpt2_124m(), rows, context, free);
  return bench::run(
      argc, argv,
      {.metric = "slow-down",
       .unit = "%",
       .better = "lower",
       .extra = {{"config",
                  {{"shape", "GPT-2 124M, 64 rows of 1,024 tokens, bf16"},
                   {"against", "the same step with cuBLASLt free to split sums, by measurement"}}},
                 {"seed", 7}},
       .samples = 9,
       .warmup = 2},
      [&] {
        const double a = ours.rate(2), b = theirs.rate(2), c = ours.rate(2);
        return 100 * (2 * b / (a + c) - 1);
      });
}
