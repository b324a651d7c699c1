// How much slower the slowest tokens are than the middle one.

#include "labs/inference/serving.h"

int main(int argc, char** argv) {
  using namespace rose;
  if (labs::was_part(argc, argv)) return 0;
  constexpr int requests = 768;
  const labs::ServedEngine server(argv[0], 0, 0);
  labs::load_once(server.target(), labs::users_load(labs::users, 1));
  std::uint64_t seed = 10;
  return bench::run(
      argc, argv,
      {.metric = "ratio",
       .unit = "ratio",
       .better = "lower",
       .extra = {{"config", labs::qwen3_record({{"users", labs::users},
                                                {"requests", requests},
                                                {"step_tokens", labs::step_tokens}})}},
       .samples = 2,
       .warmup = 0},
      [&] {
        const auto s = labs::load_once(server.target(), labs::users_load(requests, seed++));
        return s.itl.p99 / s.itl.p50;
      });
}
