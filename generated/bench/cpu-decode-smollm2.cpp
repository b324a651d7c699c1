// Decode 64 tokens as the peer does.

#include "benchmarks/harness/bench.h"
#include "rose/core/parallel.h"
#include "rose/model/files/checkpoint.h"
#include "rose/model/generate.h"
#include "rose/text/tokenizer.h"

namespace {

/// Bytes per second that all cores can read, from a buffer far larger than the caches.
double read_bandwidth(rose::core::ThreadPool& pool) {
  const std::vector<std::uint64_t> buffer(std::size_t{1} << 25, 1);  // 256 MiB
  double best = 0.0;
  for (int i = 0; i < 5; ++i) {
    const double time = rose::bench::seconds([&] {
      pool.for_range(static_cast<std::int64_t>(buffer.size()), 1 << 16,
                     [&](std::int64_t begin, std::int64_t end) {
                       std::uint64_t sum = 0;
                       for (std::int64_t j = begin; j < end; ++j)
                         sum += buffer[static_cast<std::size_t>(j)];
                       rose::bench::keep(sum);
                     });
    });
    best = std::max(best, static_cast<double>(buffer.size()) * sizeof(std::uint64_t) / time);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const auto checkpoint = rose::model::open_checkpoint(argc > 1 ? argv[1] : "");
  const auto weights = rose::model::load_weights(checkpoint);
  rose::core::ThreadPool& pool = rose::core::default_pool();
  const auto tokenizer = rose::text::Tokenizer::from_gguf(checkpoint.vocab.value());
  const auto prompt = tokenizer.encode("The history of the printing press begins", false);
  rose::model::Generator generator(weights, 1024, pool);
  const rose::model::GenerateOptions options{
      .max_tokens = 65, .ignore_stop = true};  // the first comes with the prompt
  const double limit = read_bandwidth(pool) / static_cast<double>(weights->bytes());
  return rose::bench::run(
      argc, argv,
      {.metric = "rate",
       .unit = "tokens/s",
       .better = "higher",
       .extra = {{"limit",
                  {{"name", "weights read once per token at the measured read bandwidth"},
                   {"value", limit}}}}},
      [&] {
        generator.reset();
        return 64.0 / generator.generate(prompt, options).decode_seconds;
      });
}
