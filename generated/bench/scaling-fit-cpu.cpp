// Train two dozen small models, and fit their losses.

#include <fmt/format.h>

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>

#include "rose/core/error.h"
#include "rose/core/parallel.h"
#include "rose/trainer/run.h"
#include "rose/trainer/scaling_law.h"

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using rose::trainer::ScalingLaw;
using rose::trainer::ScalingRun;

// Train one model.
struct Shape {
  std::int64_t layers, hidden;
};

constexpr std::int64_t vocabulary = 512, step_tokens = 512, head_dim = 16;

double block_parameters(const Shape& s) {
  const double d = static_cast<double>(s.hidden);
  return static_cast<double>(s.layers) * (4 * d * d + 3 * d * (2.5 * d) + 2 * d) + d;
}

double held_out_loss(const Shape& s, std::int64_t tokens, const fs::path& data,
                     rose::core::ThreadPool& pool) {
  const std::int64_t steps = tokens / step_tokens;
  const double rate = 4e-3 * std::sqrt(128.0 / static_cast<double>(s.hidden));
  const fs::path out = data / "run";
  fs::remove_all(out);
  const auto config = rose::trainer::parse_config(
      fmt::format(R"(
steps: {}
device: cpu
model: {{family: llama, vocab_size: {}, layers: {}, hidden: {}, heads: {}, kv_heads: {}, head_dim: {}, ffn: {}, max_positions: 128, tied_head: true}}
data: {{train: [{}], validation: [{}]}}
batch: {{context: 128, rows: 4, tokens: {}}}
optimizer: {{rate: {}, last_rate: 0, schedule: linear, warmup: {}, beta2: 0.98}}
every: {{log: 1000000, validate: {}, checkpoint: 0, validation_batches: 96}}
out: {}
)",
                  steps, vocabulary, s.layers, s.hidden, s.hidden / head_dim, s.hidden / head_dim,
                  head_dim, s.hidden * 5 / 2, (data / "tokens").string(),
                  (data / "held-out-tokens/train-00000.bin").string(), step_tokens, rate,
                  std::min<std::int64_t>(50, steps / 10), steps, out.string()),
      "scaling-fit-cpu");
  return rose::trainer::train(config, false, {}, pool).validation_loss;
}

// Say what the fit says, with intervals.
template <class Value>
json::object with_interval(const ScalingLaw& law, const std::vector<ScalingLaw>& others,
                           const Value& value) {
  std::vector<double> values;
  for (const ScalingLaw& other : others) values.push_back(value(other));
  std::ranges::sort(values);
  const auto at = [&](double part) {
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
  };
  return {{"value", value(law)}, {"low", at(0.025)}, {"high", at(0.975)}};
}

json::object described(const std::vector<ScalingRun>& runs) {
  const ScalingLaw law = rose::trainer::fit_scaling_law(runs);
  const auto others = rose::trainer::resampled_laws(runs, 1000);
  double worst = 0.0;
  for (const ScalingRun& run : runs)
    worst = std::max(worst, std::abs(law.loss(run.parameters, run.tokens) / run.loss - 1));
  return {{"alpha", with_interval(law, others, [](const ScalingLaw& l) { return l.alpha; })},
          {"beta", with_interval(law, others, [](const ScalingLaw& l) { return l.beta; })},
          {"growth", with_interval(law, others, [](const ScalingLaw& l) { return l.growth(); })},
          {"floor", with_interval(law, others, [](const ScalingLaw& l) { return l.floor; })},
          {"size", law.size},
          {"data", law.data},
          {"largest_error_percent", 100 * worst}};
}

// Train the grid, the cheap runs first.
struct Sweep {
  std::vector<ScalingRun> whole, blocks;  ///< with and without the embedding counted
  json::array runs;
};

Sweep sweep(const fs::path& data, bool quick) {
  rose::core::ThreadPool pool(1);
  Sweep out;
  const std::vector<Shape> shapes{{2, 32}, {2, 48}, {3, 64}, {3, 96}, {4, 128}};
  constexpr double most = 3e12;  // operations of one run
  for (const Shape& s : shapes) {
    for (std::int64_t tokens = 200 * step_tokens; tokens <= 3200 * step_tokens; tokens *= 2) {
      const double blocks = block_parameters(s),
                   all = blocks + static_cast<double>(vocabulary * s.hidden);
      const double flops = 6 * all * static_cast<double>(tokens);
      if (flops > most || (quick && flops > most / 100)) continue;
      const auto start = std::chrono::steady_clock::now();
      const double loss = held_out_loss(s, tokens, data, pool);
      const double seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      std::cerr << fmt::format("{:.0f} parameters, {} tokens: loss {:.4f} ({:.0f} s)\n", all,
                               tokens, loss, seconds);
      const auto d = static_cast<double>(tokens);
      out.whole.push_back({all, d, loss}), out.blocks.push_back({blocks, d, loss});
      out.runs.push_back({{"layers", s.layers},
                          {"hidden", s.hidden},
                          {"parameters", all},
                          {"block_parameters", blocks},
                          {"tokens", tokens},
                          {"loss", loss},
                          {"seconds", seconds}});
    }
  }
  return out;
}

}  // namespace

// Sweep and fit.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "scaling-fit-cpu FOLDER [--quick]: FOLDER holds tokens/ and held-out-tokens/\n";
    return 2;
  }
  try {
    const Sweep done = sweep(argv[1], argc > 2);
    const json::object fit = described(done.whole);
    const json::object& growth = fit.at("growth").as_object();
    std::cout << json::serialize(json::object{{"metric", "exponent"},
                                              {"unit", "exponent"},
                                              {"better", "higher"},
                                              {"median", growth.at("value")},
                                              {"min", growth.at("low")},
                                              {"max", growth.at("high")},
                                              {"samples", done.runs.size()},
                                              {"warmup", 0},
                                              {"fit", fit},
                                              {"fit_of_blocks", described(done.blocks)},
                                              {"runs", done.runs},
                                              {"seed", 1},
                                              {"config",
                                               {{"vocabulary", vocabulary},
                                                {"context", 128},
                                                {"tokens_of_a_step", step_tokens},
                                                {"rate", "4e-3 (128 / hidden)^0.5, linear to 0"},
                                                {"threads", 1},
                                                {"resamples", 1000}}}})
              << "\n";
  } catch (const rose::core::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
