// What a bench program needs around the thing that it measures: warm-up, samples, medians, interleaved pairs, and the one
// line of JSON that benchmarks/run.py reads. A program calls `run` or `run_against` from main; see benchmarks/README.md.
#pragma once

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rose::bench {

/// One sample: the value in the bench's unit.
using Sample = std::function<double()>;

struct About {
  std::string metric;  ///< what is measured: "rate", "time"
  std::string unit;    ///< "MB/s", "ms"
  std::string better;  ///< "higher" or "lower"
  boost::json::object extra =
      {};  ///< further keys of the record: config, correct, limit, seed, libraries, checksum
  std::size_t samples = 15;
  std::size_t warmup = 3;
};

struct Peer {
  std::string name, version, settings;
  Sample sample;
};

/// Keeps the compiler from dropping a result that nothing else uses.
template <typename T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// Wall time of one call, in seconds.
template <typename F>
double seconds(F&& work) {
  const auto start = std::chrono::steady_clock::now();
  std::forward<F>(work)();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

namespace detail {

inline void put_values(boost::json::object& into, const std::vector<double>& values) {
  into["median"] = median(values);
  into["min"] = *std::min_element(values.begin(), values.end());
  into["max"] = *std::max_element(values.begin(), values.end());
  into["values"] = boost::json::array(values.begin(), values.end());
}

inline void print(const boost::json::object& object) {
  std::cout << boost::json::serialize(object)
            << std::endl;  // flushed: the runner waits for each line
}

inline void options(int argc, char** argv, About& about, bool& serve) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--serve") serve = true;
    if (argument.starts_with("--samples=")) {
      std::from_chars(argv[i] + 10, argument.data() + argument.size(), about.samples);
    }
  }
}

}  // namespace detail

/// Interleaves two sides in one process, swapping who goes first, and prints the record with peer and ratio.
inline int run_against(int argc, char** argv, About about, const Sample& ours, const Peer& peer) {
  bool serve = false;
  detail::options(argc, argv, about, serve);
  std::vector<double> mine, theirs;
  for (std::size_t i = 0; i < about.warmup + about.samples; ++i) {
    double first = 0, second = 0;
    if (i % 2 == 0) {
      first = ours();
      second = peer.sample();
    } else {
      second = peer.sample();
      first = ours();
    }
    if (i < about.warmup) continue;
    mine.push_back(first);
    theirs.push_back(second);
  }
  boost::json::object record = about.extra;
  record["metric"] = about.metric;
  record["unit"] = about.unit;
  record["better"] = about.better;
  record["samples"] = about.samples;
  record["warmup"] = about.warmup;
  detail::put_values(record, mine);
  boost::json::object other{
      {"name", peer.name}, {"version", peer.version}, {"settings", peer.settings}};
  detail::put_values(other, theirs);
  record["peer"] = std::move(other);
  detail::print(record);
  return 0;
}

/// Samples and prints the record; with --serve, answers one sample for each line "run" on standard input, so that the runner
/// can interleave it with a peer in another process.
inline int run(int argc, char** argv, About about, const Sample& ours) {
  bool serve = false;
  detail::options(argc, argv, about, serve);
  boost::json::object record = about.extra;
  record["metric"] = about.metric;
  record["unit"] = about.unit;
  record["better"] = about.better;
  if (serve) {
    detail::print(record);
    for (std::string line; std::getline(std::cin, line);) {
      if (line == "run") detail::print({{"value", ours()}});
    }
    return 0;
  }
  for (std::size_t i = 0; i < about.warmup; ++i) ours();
  std::vector<double> values(about.samples);
  for (double& value : values) value = ours();
  record["samples"] = about.samples;
  record["warmup"] = about.warmup;
  detail::put_values(record, values);
  detail::print(record);
  return 0;
}

}  // namespace rose::bench
