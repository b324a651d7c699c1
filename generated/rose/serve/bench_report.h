// Sum up, keep, merge and print results.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rose/serve/bench_reading.h"

namespace rose::serve {

/// Of some seconds.
struct Spread {
  std::size_t count = 0;
  double mean = 0.0, p50 = 0.0, p90 = 0.0, p99 = 0.0, max = 0.0;
};
Spread spread_of(std::vector<double> values);
double percentile(const std::vector<double>& ascending, double share);  ///< linear between ranks

/// What a request must reach to count as good; seconds, 0: no condition.
struct Objective {
  double ttft = 0.0, tpot = 0.0, e2e = 0.0;
  static Objective parse(std::string_view text);  ///< "ttft:500,tpot:50,e2e:10000", in ms
  bool met(const Measured& m) const;
};

struct BenchResult {
  std::string label;         ///< of the curve that it belongs to: the server's name
  json::object workload;     ///< as describe() says
  json::object environment;  ///< machine, server's command, versions: whatever the reader must know
  std::vector<std::uint64_t> seeds{};
  std::vector<Measured> requests{};
  double seconds = 0.0, cpu_seconds = 0.0;

  double rate() const;  ///< offered conversations per second; of a closed load, its users
  bool open() const;
};

struct BenchSummary {
  std::size_t asked = 0, answered = 0, good = 0, early = 0 /* fewer tokens than wanted */;
  std::vector<std::pair<std::string, std::size_t>> errors{};
  std::int64_t prompt = 0, cached = 0, completion = 0;
  double seconds = 0.0, steady = 0.0 /* output tokens per second */, busy = 0.0, latest = 0.0;
  bool exact = false;  ///< ITL is known
  Spread ttft{}, tpot{}, itl{}, gap{}, e2e{};
  double per_second(double count) const { return seconds > 0 ? count / seconds : 0.0; }
};
BenchSummary summarize(const BenchResult& result, const Objective& objective);

/// Every arrival is kept, to the microsecond.
json::object to_json(const BenchResult& result, const Objective& objective);
BenchResult result_from_json(const json::object& object, std::string_view where);
/// Several results of one file: {"results": [...]}.
std::string results_file(const std::vector<BenchResult>& results, const Objective& objective);
std::vector<BenchResult> read_results(const std::string& file);
/// Results of the same label and load become one, whatever their seeds.
std::vector<BenchResult> merge(std::vector<BenchResult> results);

std::string markdown(const BenchResult& result, const BenchSummary& summary);
/// A row for each result, to compare.
std::string markdown_overview(const std::vector<BenchResult>& results, const Objective& objective);

}  // namespace rose::serve
