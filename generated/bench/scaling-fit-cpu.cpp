// Train a dozen small models, and fit their losses.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

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

constexpr std::int64_t vocabulary = 512, context = 128, rows = 4;
constexpr std::int64_t step_tokens = rows * context, head_dim = 16;
constexpr double rate = 1e-2;

double block_parameters(const Shape& s) {
  const double d = static_cast<double>(s.hidden);
  return static_cast<double>(s.layers) * (4 * d * d + 3 * d * (2.5 * d) + 2 * d) + d;
}

double held_out_loss(const Shape& s, std::int64_t tokens, const fs::path& data,
                     rose::core::ThreadPool& pool) {
  const std::int64_t steps = tokens / step_tokens;
  const fs::path out = data / fmt::format("run-{}-{}", s.hidden, steps);
  fs::remove_all(out);
  const auto config = rose::trainer::parse_config(
      fmt::format(R"(
steps: {}
device: cpu
model: {{family: llama, vocab_size: {}, layers: {}, hidden: {}, heads: {}, kv_heads: {}, head_dim: {}, ffn: {}, max_positions: {}, tied_head: true}}
data: {{train: [{}], validation: [{}]}}
batch: {{context: {}, rows: {}, tokens: {}}}
optimizer: {{method: muon, rate: {}, last_rate: 0, schedule: linear, warmup: {}, beta2: 0.98}}
every: {{log: 1000000, validate: {}, checkpoint: 0, validation_batches: 100}}
out: {}
)",
                  steps, vocabulary, s.layers, s.hidden, s.hidden / head_dim, s.hidden / head_dim,
                  head_dim, s.hidden * 5 / 2, context, (data / "tokens").string(),
                  (data / "held-out-tokens/train-00000.bin").string(), context, rows, step_tokens,
                  rate, std::min<std::int64_t>(50, steps / 10), steps, out.string()),
      "scaling-fit-cpu");
  const double loss = rose::trainer::train(config, false, {}, pool).validation_loss;
  fs::remove_all(out);
  return loss;
}

// Say what the fit says, with intervals.
constexpr int resamples = 1000;

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
  const auto others = rose::trainer::resampled_laws(runs, resamples);
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

// Train the grid, one core a run.
struct Job {
  Shape shape;
  std::int64_t tokens;
  double blocks, all;  ///< parameters, without and with the embedding
  double loss = 0.0, seconds = 0.0;
  double flops() const { return 6 * all * static_cast<double>(tokens); }
};

// Every size on every amount of text that it can afford, the dearest first.
std::vector<Job> grid(double most_flops) {
  const std::vector<Shape> shapes{{2, 32}, {2, 48}, {3, 64}, {3, 96}, {4, 128}};
  std::vector<Job> jobs;
  for (const Shape& s : shapes) {
    for (std::int64_t tokens = 400 * step_tokens; tokens <= 6400 * step_tokens; tokens *= 2) {
      const double blocks = block_parameters(s);
      Job job{s, tokens, blocks, blocks + static_cast<double>(vocabulary * s.hidden)};
      if (job.flops() <= most_flops) jobs.push_back(job);
    }
  }
  std::ranges::sort(jobs, std::greater{}, &Job::flops);
  return jobs;
}

void run_all(std::vector<Job>& jobs, const fs::path& data) {
  std::atomic<std::size_t> next = 0;
  std::vector<std::jthread> workers;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  for (std::size_t w = 0; w < std::min(cores, jobs.size()); ++w) {
    workers.emplace_back([&] {
      rose::core::ThreadPool pool(1);
      for (std::size_t i = next++; i < jobs.size(); i = next++) {
        Job& job = jobs[i];
        const auto start = std::chrono::steady_clock::now();
        job.loss = held_out_loss(job.shape, job.tokens, data, pool);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        job.seconds = taken.count();
        std::cerr << fmt::format("{:.0f} parameters, {} tokens: loss {:.4f} ({:.0f} s)\n", job.all,
                                 job.tokens, job.loss, job.seconds);
      }
    });
  }
}

json::array described_runs(const std::vector<Job>& jobs) {
  json::array out;
  for (const Job& j : jobs)
    out.push_back({{"layers", j.shape.layers},
                   {"hidden", j.shape.hidden},
                   {"parameters", j.all},
                   {"block_parameters", j.blocks},
                   {"tokens", j.tokens},
                   {"loss", j.loss},
                   {"seconds", j.seconds}});
  return out;
}

}  // namespace

// Sweep and fit.
int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "scaling-fit-cpu FOLDER [OPERATIONS]: FOLDER holds tokens/ and held-out-tokens/; "
                 "OPERATIONS are the most that a run may take\n";
    return 2;
  }
  try {
    constexpr double usual = 8e11;
    std::vector<Job> jobs = grid(argc > 2 ? std::stod(argv[2]) : usual);
    run_all(jobs, argv[1]);
    std::vector<ScalingRun> whole, blocks;
    for (const Job& j : jobs) {
      const auto tokens = static_cast<double>(j.tokens);
      whole.push_back({j.all, tokens, j.loss}), blocks.push_back({j.blocks, tokens, j.loss});
    }
    const json::object fit = described(whole);
    const json::object& growth = fit.at("growth").as_object();
    std::cout << json::serialize(json::object{{"metric", "exponent"},
                                              {"unit", "exponent"},
                                              {"better", "higher"},
                                              {"median", growth.at("value")},
                                              {"min", growth.at("low")},
                                              {"max", growth.at("high")},
                                              {"samples", jobs.size()},
                                              {"warmup", 0},
                                              {"fit", fit},
                                              {"fit_of_blocks", described(blocks)},
                                              {"runs", described_runs(jobs)},
                                              {"seed", 1},
                                              {"config",
                                               {{"vocabulary", vocabulary},
                                                {"context", context},
                                                {"tokens_of_a_step", step_tokens},
                                                {"optimizer", "Muon"},
                                                {"rate", rate},
                                                {"threads_of_a_run", 1},
                                                {"resamples", resamples}}}})
              << "\n";
  } catch (const rose::core::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
