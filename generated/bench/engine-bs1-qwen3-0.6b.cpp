// Write 128 tokens of one conversation.

#include <cstdio>
#include <numeric>
#include <vector>

#include "benchmarks/harness/bench.h"
#include "labs/inference/qwen3.h"
#include "rose/infer/gpu_runner.h"
#include "rose/kernels/gpu/stream.h"

namespace {

using namespace rose;

constexpr std::int32_t prompt = 64, answer = 128;

struct Conversation {
  infer::Runner& runner;
  std::vector<std::int32_t> table = std::vector<std::int32_t>(64), ids{}, positions{};
  std::vector<infer::RowSampling> sampling{1};

  void launch(std::int32_t first) {
    const std::vector<std::int32_t> offsets{0, static_cast<std::int32_t>(ids.size())},
        wanted{offsets.back() - 1};
    positions.resize(ids.size());
    std::iota(positions.begin(), positions.end(), first);
    runner.launch({.ids = ids,
                   .positions = positions,
                   .row_offsets = offsets,
                   .page_table = table,
                   .table_stride = 64,
                   .copies = {},
                   .logit_tokens = wanted,
                   .sampling = sampling});
  }
  /// Reads the prompt, then writes; returns tokens per second of the writing.
  double write() {
    std::iota(table.begin(), table.end(), 1);
    ids.resize(prompt);
    core::Rng rng(9);
    for (auto& id : ids) id = static_cast<std::int32_t>(rng.below(151'936));
    launch(0);
    ids = {runner.wait().tokens[0]};
    const double seconds = bench::seconds([&] {
      launch(prompt);
      for (std::int32_t i = 1; i < answer; ++i) {
        ids = {-1};
        launch(prompt + i);
        runner.wait();
      }
      runner.wait();
    });
    return answer / seconds;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (labs::no_gpu("engine-bs1")) return 1;
  const auto runner = infer::make_gpu_runner(
      labs::random_bf16_weights(labs::qwen3_600m()),
      {.tokens = 1024, .sequences = 1, .positions = 1024, .pages = 128, .measured = true});
  std::fputs((runner->memory().describe() + "\n").c_str(), stderr);
  Conversation conversation{*runner};
  return bench::run(
      argc, argv,
      {.metric = "rate",
       .unit = "tokens/s",
       .better = "higher",
       .extra = {{"config", labs::qwen3_record({{"prompt", prompt}, {"answer", answer}})},
                 {"seed", 9}},
       .samples = 15,
       .warmup = 3},
      [&] { return conversation.write(); });
}
