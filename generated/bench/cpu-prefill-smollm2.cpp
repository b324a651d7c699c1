// Read 512 tokens as the peer does.

#include <numeric>

#include "benchmarks/harness/bench.h"
#include "rose/core/parallel.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/generate.h"

int main(int argc, char** argv) {
  const auto checkpoint = rose::model::open_checkpoint(argc > 1 ? argv[1] : "");
  const auto weights = rose::model::load_weights(checkpoint);
  std::vector<std::int32_t> prompt(512);
  std::iota(prompt.begin(), prompt.end(), 1000);  // any ids do: the work is the same
  rose::model::Generator generator(weights, 1024, rose::core::default_pool());
  return rose::bench::run(
      argc, argv, {.metric = "rate", .unit = "tokens/s", .better = "higher"}, [&] {
        generator.reset();
        return 512.0 /
               generator.generate(prompt, {.max_tokens = 1, .ignore_stop = true}).prefill_seconds;
      });
}
