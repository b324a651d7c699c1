// Time every rung of a ladder beside the library.

#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "labs/gpu/rung.h"
#include "rose/kernels/gpu/instruments.h"

namespace rose::labs {

/// What is timed: a rung with its arguments, or a library.
struct Contestant {
  std::string name, idea;
  gpu::Launch launch;
};

// Rates of all rungs, then the last one against the library.
struct Ladder {
  std::string unit;        ///< "GB/s", or "Gkeys/s"
  double work;             ///< of one launch, in 10^9 of what the unit counts
  int copies;              ///< of inputs and outputs, to rotate through
  std::string limit_name;  ///< what bounds any kernel for this
  double limit;            ///< in the unit
  std::string against;     ///< what every rung's result was compared with, before this
  double error, bound;     ///< the largest difference found there, and the largest allowed
  std::vector<Contestant> rungs;
  Contestant library;   ///< its idea is its settings
  std::string version;  ///< the library's
};

inline double rate_of(const Ladder& ladder, const Contestant& c, int samples) {
  const gpu::TimingOptions options{
      .copies = ladder.copies, .rounds = 2, .samples = samples, .warmup = 1};
  return ladder.work / (1e-6 * gpu::time_launches(c.launch, options).median_us);
}

/// Prints a table on the error stream and the record on the other.
inline int ladder_bench(int argc, char** argv, const Ladder& ladder) {
  for (int i = 0; i < 3; ++i) rate_of(ladder, ladder.library, 3);  // wakes the chip
  boost::json::array rungs;
  for (const Contestant& rung : ladder.rungs) {
    const double rate = rate_of(ladder, rung, 5);
    std::fprintf(stderr, "%-28s %10.1f %s  %s\n", rung.name.c_str(), rate, ladder.unit.c_str(),
                 rung.idea.c_str());
    rungs.push_back({{"name", rung.name}, {"idea", rung.idea}, {"value", rate}});
  }
  const bench::About about{
      .metric = "rate",
      .unit = ladder.unit,
      .better = "higher",
      .extra = {{"limit", {{"name", ladder.limit_name}, {"value", ladder.limit}}},
                {"correct",
                 {{"against", ladder.against}, {"error", ladder.error}, {"bound", ladder.bound}}},
                {"config", {{"rungs", std::move(rungs)}}}},
      .samples = 21};
  return bench::run_against(argc, argv, about,
                            [&] { return rate_of(ladder, ladder.rungs.back(), 3); },
                            {.name = ladder.library.name,
                             .version = ladder.version,
                             .settings = ladder.library.idea,
                             .sample = [&] { return rate_of(ladder, ladder.library, 3); }});
}

}  // namespace rose::labs
