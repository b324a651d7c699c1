// The whole pass with more and more threads.

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/parallel.h"
#include "rose/trainer/data/prepare.h"

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct Pass {
  double megabytes_per_second = 0.0;
  std::string tokens;  ///< the first shard
};

Pass pass(const fs::path& folder, const rose::text::Tokenizer& tokenizer, int threads) {
  rose::core::ThreadPool pool(threads);
  const fs::path out = folder / "shards";
  fs::remove_all(out);
  rose::trainer::PrepareOptions options;
  constexpr int copies = 8;  // of a text that is too short for many cores
  options.inputs.assign(copies, folder / "text");
  options.out = out;
  options.tokenizer = &tokenizer;
  options.held_out = 0.0;
  options.duplicates = rose::trainer::Duplicates::keep;
  options.pool = &pool;
  options.quiet = true;
  std::int64_t bytes = 0;
  const double seconds =
      rose::bench::seconds([&] { bytes = rose::trainer::prepare(options).text_bytes; });
  return {static_cast<double>(bytes) / 1e6 / seconds,
          rose::core::read_file(out / "train-00000.bin")};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "data-tokenize-cores FOLDER: FOLDER holds text/ and words/\n";
    return 2;
  }
  try {
    const fs::path folder = argv[1];
    const auto tokenizer = rose::text::Tokenizer::load((folder / "words").string());
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    json::array by_threads;
    std::vector<double> last;
    std::string expected;
    for (int threads = 1; threads <= cores; threads *= 2) {
      std::vector<double> rates;
      constexpr int rounds = 4;  // the first one fills caches
      for (int round = 0; round < rounds; ++round) {
        const Pass done = pass(folder, tokenizer, threads);
        if (expected.empty()) expected = done.tokens;
        if (done.tokens != expected) {
          std::cerr << "other tokens with " << threads << " threads\n";
          return 1;
        }
        if (round > 0) rates.push_back(done.megabytes_per_second);
      }
      by_threads.push_back({{"threads", threads}, {"rate", rose::bench::median(rates)}});
      last = rates;
    }
    const double first = by_threads.front().at("rate").as_double();
    const double most = rose::bench::median(last);
    std::cout << json::serialize(json::object{
                     {"median", most / first},
                     {"min", std::ranges::min(last) / first},
                     {"max", std::ranges::max(last) / first},
                     {"samples", last.size()},
                     {"warmup", 1},
                     {"by_threads", by_threads},
                     {"correct", {{"against", "the shard that one thread writes, byte for byte"}}}})
              << "\n";
  } catch (const rose::core::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
