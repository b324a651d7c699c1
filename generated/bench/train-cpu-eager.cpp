// Eight training steps of the demonstration's model.

#include "benchmarks/harness/bench.h"
#include "rose/core/parallel.h"
#include "rose/core/rng.h"
#include "rose/trainer/demo.h"

int main(int argc, char** argv) {
  constexpr std::int64_t vocabulary = 1024, steps = 8;
  const auto weights =
      rose::model::random_weights(rose::trainer::demo_config(vocabulary), /*seed=*/1);
  const auto options = rose::trainer::demo_trainer_options(/*steps=*/800, /*seed=*/1);
  std::vector<std::int32_t> tokens(100'000);
  rose::core::Rng rng(1);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(rng.below(vocabulary));
  rose::trainer::Trainer trainer(weights, options, rose::core::default_pool());
  return rose::bench::run(
      argc, argv, {.metric = "rate", .unit = "tokens/s", .better = "higher"}, [&] {
        const double seconds = rose::bench::seconds([&] {
          for (std::int64_t i = 0; i < steps; ++i) trainer.step(tokens);
        });
        return static_cast<double>(steps * options.batch * options.context) / seconds;
      });
}
