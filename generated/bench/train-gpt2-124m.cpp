// A training step of GPT-2 124M.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "benchmarks/harness/bench.h"
#include "labs/training/gpu_steps.h"

namespace {

using namespace rose;

/// How long a weight's gradient takes in so many slices, and in pieces of the library's choice.
void print_slices() {
  using kernels::gpu::BackwardPlan, kernels::gpu::BackwardProduct, kernels::gpu::BackwardShape;
  for (const auto& [n, k] : {std::pair{768, 768}, {2304, 768}, {3072, 768}, {768, 3072}}) {
    BackwardShape shape{.product = BackwardProduct::weight, .m = 65536, .n = n, .k = k};
    const double flops = 2.0 * 65536 * n * k;
    for (std::int64_t slices : {0, 1, 2, 4, 8, 16, 32}) {
      shape.free = slices == 0;
      const std::vector<BackwardPlan> plans =
          kernels::gpu::backward_plans(shape, std::max<std::int64_t>(slices, 1), 8);
      const auto timings = kernels::gpu::time_backward(plans, 5);
      double best = timings.front().median_us;
      for (const auto& timing : timings) best = std::min(best, timing.median_us);
      std::fprintf(stderr,
                   "  dw %4d x %4d, %2d slices: first %.1f, best of %zu %.1f us, %.0f TFLOP/s\n", n,
                   k, static_cast<int>(slices), timings.front().median_us, plans.size(), best,
                   flops / best / 1e6);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (!kernels::gpu::available()) {
    std::fputs("train-gpt2-124m: there is no GPU\n", stderr);
    return 1;
  }
  constexpr std::int64_t rows = 64, context = 1024;
  const bool measured = std::getenv("ROSE_UNMEASURED") == nullptr;
  labs::GpuSteps steps(labs::gpt2_124m(), rows, context,
                       {.recompute = model::Recompute::nothing, .measured = measured});
  const double loss = steps.step(), expected = std::log(50257.0);
  if (!(std::abs(loss - expected) < 0.5)) {
    std::fprintf(stderr, "a fresh model's loss is %f, not near %f\n", loss, expected);
    return 1;
  }
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--table") steps.print_table();
    if (std::string_view(argv[i]) == "--slices") print_slices();
  }
  return bench::run(
      argc, argv,
      {.metric = "rate",
       .unit = "tokens/s",
       .better = "higher",
       .extra = {{"config",
                  {{"shape", "GPT-2 124M, vocabulary 50,304, random weights"},
                   {"rows", rows},
                   {"context", context},
                   {"precision", "bf16, fp32 masters, moments and gradients"},
                   {"flops_per_token", steps.flops()},
                   {"flop_convention", "6 N of matrices and head, 6 L H D T of causal attention"},
                   {"laws", "on"}}},
                 {"seed", 7}},
       .samples = 9,
       .warmup = 2},
      [&] { return steps.rate(4); });
}
