// Draw latencies and throughput over the load.

#pragma once

#include <string>
#include <vector>

#include "rose/serve/bench_report.h"

namespace rose::serve {

/// An SVG picture with title and description.
std::string plot_results(const std::vector<BenchResult>& results, const Objective& objective);

}  // namespace rose::serve
