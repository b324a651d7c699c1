// Plan and complete steps of 256 answers.

#include <memory>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "rose/infer/scheduler.h"

int main(int argc, char** argv) {
  using namespace rose::infer;
  constexpr std::int64_t answers = 256, steps = 200;
  constexpr std::size_t prompt = 500;
  KvPool pool(40'000);
  PrefixCache cache(pool, 16);
  Scheduler scheduler({.tokens = 8192, .sequences = answers, .rows = answers}, pool, cache);
  std::vector<std::unique_ptr<Sequence>> sequences;
  StepPlan plan;
  std::vector<rose::kernels::KvPageCopy> copies;
  std::int32_t token = 0;
  const auto step = [&] {
    scheduler.plan(plan);
    copies.clear();
    scheduler.apply(plan, copies);
    scheduler.complete(plan.rows);
    for (const PlannedRow& row : plan.rows) {
      token = (token * 31 + 7) % 50'021;
      if (row.choices > 0) scheduler.extend(row, {&token, 1});
    }
  };
  const auto sample = [&] {
    for (auto& s : sequences) scheduler.remove(*s);
    sequences.clear();
    cache.forget_all();
    for (std::int64_t i = 0; i < answers; ++i) {
      auto& s = *sequences.emplace_back(std::make_unique<Sequence>());
      s.number = static_cast<std::uint64_t>(i);
      for (std::size_t t = 0; t < prompt; ++t)
        s.tokens.push_back(token = (token * 31 + 7 + static_cast<std::int32_t>(i)) % 50'021);
      s.prompt = static_cast<std::int64_t>(prompt), s.limit = 4000;
      s.tokens.reserve(4000);
      s.root = cache.root(1, "", "");
      scheduler.add(s);
    }
    while (scheduler.running().size() < answers || sequences.back()->pending() != 1) step();
    const double seconds = rose::bench::seconds([&] {
      for (std::int64_t i = 0; i < steps; ++i) step();
    });
    return seconds / static_cast<double>(steps) * 1e6;
  };
  return rose::bench::run(
      argc, argv,
      {.metric = "time",
       .unit = "us",
       .better = "lower",
       .extra = {{"config", {{"running", answers}, {"context", prompt}, {"page_size", 16}}}}},
      sample);
}
