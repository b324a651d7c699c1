// Answer eight requests at once.

#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "rose/infer/cpu_runner.h"
#include "rose/infer/engine.h"
#include "rose/model/files/checkpoint.h"
#include "rose/text/tokenizer.h"

int main(int argc, char** argv) {
  using namespace rose;
  const auto checkpoint = model::open_checkpoint(argc > 1 ? argv[1] : "");
  const auto tokenizer = text::Tokenizer::from_gguf(checkpoint.vocab.value());
  infer::Engine engine(infer::make_cpu_runner(model::load_weights(checkpoint),
                                              {.max_sequences = 8, .positions = 256}),
                       {.prefix_caching = false}, tokenizer);
  constexpr std::int64_t answer = 64;
  constexpr std::array<std::string_view, 8> topics{"printing press", "steam engine", "compass",
                                                   "telescope",      "bicycle",      "piano",
                                                   "lighthouse",     "clock"};
  std::vector<infer::Request> requests;
  for (const std::string_view topic : topics) {
    infer::Request& r = requests.emplace_back();
    r.prompt = tokenizer.encode("The history of the " + std::string(topic) + " begins", false);
    r.sampling.temperature = 0.0f;
    r.sampling.max_tokens = answer;
    r.sampling.ignore_eos = true;
  }
  return bench::run(argc, argv,
                    {.metric = "rate",
                     .unit = "tokens/s",
                     .better = "higher",
                     .extra = {{"config", {{"requests", 8}, {"answer", answer}}}}},
                    [&] {
                      std::atomic<std::int64_t> tokens{0};
                      const double seconds = bench::seconds([&] {
                        for (infer::Request r : requests) {
                          r.on_event = [&tokens](const infer::Event& e) {
                            tokens += static_cast<std::int64_t>(e.tokens.size());
                          };
                          engine.submit(std::move(r));
                        }
                        engine.run();
                      });
                      return static_cast<double>(tokens.load()) / seconds;
                    });
}
