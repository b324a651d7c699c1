// What 256 streams lose by coming over HTTP.

#include "labs/inference/serving.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (labs::was_part(argc, argv)) return 0;
  constexpr int requests = 1024;
  const labs::ServedEngine server(argv[0], requests, 2);
  labs::load_once(server.target(), labs::users_load(labs::users, 1));
  const double bare = bench::median(server.bare());
  std::fprintf(stderr, "bare engine: %.0f output tokens/s\n", bare);
  std::uint64_t seed = 10;
  return bench::run(argc, argv,
                    {.metric = "cost",
                     .unit = "%",
                     .better = "lower",
                     .extra = {{"config", labs::qwen3_record({{"users", labs::users},
                                                              {"requests", requests},
                                                              {"bare_tokens_per_second", bare}})}},
                     .samples = 2,
                     .warmup = 0},
                    [&] {
                      const auto s =
                          labs::load_once(server.target(), labs::users_load(requests, seed++));
                      return 100.0 * (1.0 - s.per_second(static_cast<double>(s.completion)) / bare);
                    });
}
