// Answer the mix with the laws on, and off.

#include "labs/inference/requests.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (labs::no_gpu("engine-invariance-cost")) return 1;
  infer::GpuRunnerOptions options{
      .tokens = 8192, .sequences = 256, .positions = 2048, .pages = 20'000};
  infer::Engine on(labs::qwen3_runner(options), {.seed = 1});
  options.laws = false;
  infer::Engine off(labs::qwen3_runner(options), {.seed = 1});
  const std::vector<infer::Request> mix = labs::nano_vllm_mix();
  return bench::run(
      argc, argv,
      {.metric = "cost",
       .unit = "%",
       .better = "lower",
       .extra = {{"config", labs::qwen3_record({{"requests", 256}, {"output_tokens", 133'966}},
                                               "on, against off")},
                 {"seed", 0}},
       .samples = 3,
       .warmup = 1},
      [&] {
        const double free = labs::answer(off, mix), bound = labs::answer(on, mix);
        return 100.0 * (1.0 - bound / free);
      });
}
