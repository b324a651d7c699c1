// The first token of one short question.

#include "labs/inference/serving.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (labs::was_part(argc, argv)) return 0;
  const labs::ServedEngine server(argv[0], 0, 0);
  serve::Workload w{.concurrency = 1, .requests = 100};
  w.prompt = serve::LengthLaw(128), w.answer = serve::LengthLaw(8);
  labs::load_once(server.target(), w, true);
  return bench::run(argc, argv,
                    {.metric = "time",
                     .unit = "ms",
                     .better = "lower",
                     .extra = {{"config", labs::qwen3_record({{"prompt_tokens", 128}})}},
                     .samples = 5,
                     .warmup = 0},
                    [&] {
                      ++w.seed;
                      return 1000.0 * labs::load_once(server.target(), w).ttft.p50;
                    });
}
