// Write down what happens.

#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rose/core/json.h"
#include "rose/trainer/event_file.h"

namespace rose::trainer {

/// One line: the step, numbers that a repetition must give again, and numbers that it need not.
struct MetricLine {
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> values{}, timing{};
};

class MetricsLog {
 public:
  /// Appends to metrics.jsonl and timing.jsonl in `folder`, whose lines beyond `step` are dropped first, and starts an
  /// event file. Throws core::Error (io).
  MetricsLog(std::filesystem::path folder, std::int64_t step, double wall_time);

  /// Throws core::Error (io) when there is no space left.
  void write(const MetricLine& line, double wall_time);

 private:
  std::filesystem::path folder_;
  EventFile events_;
};

/// The pairs (step, value of `key`) of a metrics file, in order; lines without the key are left out.
std::vector<std::pair<double, double>> read_metric(const std::filesystem::path& file,
                                                   std::string_view key);

}  // namespace rose::trainer
