// Encode the book on one thread.

#include <fmt/format.h>

#include "benchmarks/harness/bench.h"
#include "rose/core/files.h"
#include "rose/core/hash.h"
#include "rose/text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: bench_tokenizer-encode TOKENIZER_JSON TEXT\n";
    return 2;
  }
  const auto tokenizer = rose::text::Tokenizer::load(argv[1]);
  const std::string text = rose::core::read_file(argv[2]);
  std::vector<std::int32_t> ids = tokenizer.encode(text, true);
  const std::string checksum = rose::core::sha256_hex(fmt::format("{}", fmt::join(ids, " ")));
  rose::bench::About about{.metric = "rate", .unit = "MB/s", .better = "higher"};
  about.extra = {{"checksum", checksum},
                 {"config", {{"bytes", text.size()}, {"tokens", ids.size()}}}};
  return rose::bench::run(argc, argv, about, [&] {
    ids.clear();
    const double s = rose::bench::seconds([&] { tokenizer.encode(text, true, ids); });
    return static_cast<double>(text.size()) / 1e6 / s;
  });
}
