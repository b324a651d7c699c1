// Seconds to 0.95, seed by seed.

#include "benchmarks/harness/bench.h"
#include "rose/rlhf/toy.h"

int main(int argc, char** argv) {
  std::uint64_t runs = 0;
  bool all = true;
  const int status = rose::bench::run(
      argc, argv,
      {.metric = "time",
       .unit = "s",
       .better = "lower",
       .extra = {{"config", {{"seeds", 20}, {"evaluation_episodes", 1000}, {"target", 0.95}}}},
       .samples = 20,
       .warmup = 0},
      [&] {
        const std::uint64_t seed = 1 + runs++ % 20;
        return rose::bench::seconds(
            [&] { all = rose::rlhf::train_toy({.seed = seed}).reached && all; });
      });
  return all ? status : 1;
}
