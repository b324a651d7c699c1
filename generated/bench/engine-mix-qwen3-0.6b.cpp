// Answer nano-vllm's 256 requests.

#include "labs/inference/requests.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (labs::no_gpu("engine-mix")) return 1;
  infer::Engine engine(labs::qwen3_runner({.tokens = 8192, .sequences = 256, .positions = 2048}),
                       {.seed = 1});
  const std::vector<infer::Request> mix = labs::nano_vllm_mix();
  return bench::run(
      argc, argv,
      {.metric = "rate",
       .unit = "tokens/s",
       .better = "higher",
       .extra = {{"config", labs::qwen3_record({{"requests", 256}, {"output_tokens", 133'966}})},
                 {"seed", 0}},
       .samples = 3,
       .warmup = 1},
      [&] { return labs::answer(engine, mix); });
}
