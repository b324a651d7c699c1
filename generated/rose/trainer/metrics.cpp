// Append lines that are whole.

#include "rose/trainer/metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::trainer {

namespace fs = std::filesystem;

namespace {

// Lines, whole or not at all.
template <class F>
void for_lines(std::string_view text, F&& f) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos)
      return;  // a line without an end was cut off while it was written
    f(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

std::string to_line(std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string out = fmt::format("{{\"step\":{}", step);
  for (const auto& [name, value] : values) {
    out += std::isfinite(value) ? fmt::format(",\"{}\":{}", name, value)
                                : fmt::format(",\"{}\":null", name);
  }
  return out + "}\n";
}

void append(const fs::path& path, const std::string& line) {
  std::FILE* file = std::fopen(path.c_str(), "a");
  const bool written =
      file != nullptr && std::fwrite(line.data(), 1, line.size(), file) == line.size();
  const int problem = errno;
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (written && closed) return;
  throw core::Error(core::Code::io, fmt::format("cannot write the log: {}",
                                                std::strerror(written ? errno : problem)))
      .in(path.string());
}

void keep_until(const fs::path& path, std::int64_t step) {
  if (!fs::exists(path)) return;
  std::string kept;
  for_lines(core::read_file(path), [&](std::string_view line) {
    const core::json::value value = core::parse_json(line, path.string());
    if (core::get_int(value.as_object(), "step", path.string()) <= step)
      kept += std::string(line) + "\n";
  });
  core::write_file_atomic(path, kept);
}

}  // namespace

MetricsLog::MetricsLog(fs::path folder, std::int64_t step, double wall_time)
    : folder_(std::move(folder)), events_(folder_, step, wall_time) {
  for (const char* name : {"metrics.jsonl", "timing.jsonl"}) keep_until(folder_ / name, step);
}

void MetricsLog::write(const MetricLine& line, double wall_time) {
  if (!line.values.empty()) append(folder_ / "metrics.jsonl", to_line(line.step, line.values));
  if (!line.timing.empty()) append(folder_ / "timing.jsonl", to_line(line.step, line.timing));
  for (const auto* part : {&line.values, &line.timing}) {
    for (const auto& [name, value] : *part) events_.scalar(name, line.step, value, wall_time);
  }
  events_.flush();
}

std::vector<std::pair<double, double>> read_metric(const fs::path& file, std::string_view key) {
  std::vector<std::pair<double, double>> out;
  if (!fs::exists(file)) return out;
  for_lines(core::read_file(file), [&](std::string_view line) {
    const core::json::value value = core::parse_json(line, file.string());
    const core::json::value* found = core::find(value.as_object(), key);
    const core::json::value* step = core::find(value.as_object(), "step");
    if (found != nullptr && step != nullptr && found->is_number())
      out.emplace_back(step->to_number<double>(), found->to_number<double>());
  });
  return out;
}

}  // namespace rose::trainer
