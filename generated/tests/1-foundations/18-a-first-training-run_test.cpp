// Tests of the chapter "A first training run".

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/rng.h"
#include "rose/kernels/adamw.h"
#include "rose/trainer/adamw.h"
#include "rose/trainer/data.h"
#include "rose/trainer/demo.h"
#include "rose/trainer/schedule.h"
#include "rose/trainer/trainer.h"

namespace rose::trainer {
namespace {

// Prose is what is left without fences.
TEST(Data, ProseIsWhatIsLeftWithoutFences) {
  EXPECT_EQ(
      prose_of("---\ntitle: x\n---\n# A\n````\n```\ncode\n````\nB `c`\n```cpp\nint x;\n```\nlast"),
      "# A\nB `c`\nlast");
  EXPECT_EQ(prose_of(""), "");
  EXPECT_EQ(prose_of("```\nnever closed"), "");
}

// Windows are shifted by one and can be drawn again.
TEST(Data, WindowsAreShiftedByOneAndCanBeDrawnAgain) {
  std::vector<std::int32_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0);
  Windows first, again, next;
  draw_windows(tokens, 4, 16, 7, 3, first);
  draw_windows(tokens, 4, 16, 7, 4, next);
  draw_windows(tokens, 4, 16, 7, 3, again);
  ASSERT_EQ(first.ids.size(), 64u);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(first.targets[i], first.ids[i] + 1);
  EXPECT_EQ(first.ids, again.ids);
  EXPECT_NE(first.ids, next.ids);
  std::set<std::int32_t> starts;
  for (std::uint64_t step = 0; step < 4000; ++step) {
    draw_windows(tokens, 1, 990, 7, step, next);
    starts.insert(next.ids[0]);
  }
  EXPECT_EQ(starts.size(), 10u);  // every start, the last one included, and none beyond
  EXPECT_THROW(draw_windows(std::span(tokens).first(16), 4, 16, 7, 3, first), core::Error);
}

// AdamW agrees with the hand and with LibTorch.
TEST(AdamW, AgreesWithTheHand) {
  kernels::AdamWStep step{.beta1 = 0.9f, .beta2 = 0.99f, .epsilon = 0.0f, .rate = 0.1f};
  kernels::AdamWState s{1.0f, 0.0f, 0.0f};
  s = kernels::adamw_element(s, 2.0f, kernels::at_step(step, 1));
  EXPECT_NEAR(s.weight, 0.9f, 1e-6);
  s = kernels::adamw_element(s, -1.0f, kernels::at_step(step, 2));
  EXPECT_NEAR(s.first, 0.08f, 1e-7);
  EXPECT_NEAR(s.second, 0.0496f, 1e-7);
  EXPECT_NEAR(s.weight, 0.87333f, 1e-5);
}

TEST(AdamW, RegistersHaveTheBitsOfTheDefinition) {
  core::ThreadPool pool(2);
  core::Rng rng(8);
  std::vector<float> w(10'003), g(w.size()), m(w.size()), v(w.size());
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = rng.normal(), g[i] = rng.normal(), m[i] = rng.normal(), v[i] = rng.uniform();
  const kernels::AdamWStep step = kernels::at_step({.decay = 0.1f, .rate = 0.01f}, 3);
  std::vector<kernels::AdamWState> want;
  for (std::size_t i = 0; i < w.size(); ++i)
    want.push_back(kernels::adamw_element({w[i], m[i], v[i]}, g[i] * 0.3f, step));
  kernels::adamw(w, g, 0.3f, m, v, step, pool);
  for (std::size_t i = 0; i < w.size(); ++i) {
    ASSERT_EQ(w[i], want[i].weight);
    ASSERT_EQ(m[i], want[i].first);
    ASSERT_EQ(v[i], want[i].second);
  }
}

// AdamW agrees with LibTorch, and the norm with itself on any number of threads.
model::Config small_config() {
  model::Config c;
  c.vocab_size = 40, c.layers = 2, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.hidden = 32,
  c.ffn = 48;
  c.max_positions = 64;
  c.tied_head = true;
  return c;
}

TEST(AdamW, AgreesWithLibTorch) {
  core::ThreadPool pool(2);
  const auto weights = model::random_weights(small_config(), 3);
  const AdamWOptions options{.weight_decay = 0.1f};
  AdamW ours(*weights, options);
  std::vector<at::Tensor> theirs, first, second;
  for (const model::Parameter& p : weights->parameters()) {
    theirs.push_back(at::from_blob(p.data, p.shape, at::kFloat).clone());
    first.push_back(at::zeros(p.shape));
    second.push_back(at::zeros(p.shape));
  }
  model::Gradients gradients(*weights);
  core::Rng rng(5);
  for (int step = 1; step <= 20; ++step) {
    for (float& g : gradients.all()) g = rng.normal() * rng.uniform();
    ours.step(*weights, gradients, 0.01f, 0.5f, pool);
    for (std::size_t p = 0; p < theirs.size(); ++p) {
      const at::Tensor g =
          at::from_blob(gradients.parameter(p).data(), theirs[p].sizes(), at::kFloat) * 0.5;
      const double decay = theirs[p].dim() > 1 ? 0.1 : 0.0;
      at::_fused_adamw_({theirs[p]}, {g}, {first[p]}, {second[p]}, {}, {at::full({}, step)}, 0.01,
                        0.9, 0.99, decay, 1e-8, false, false);
    }
  }
  for (std::size_t p = 0; p < theirs.size(); ++p) {
    const at::Tensor mine =
        at::from_blob(weights->parameters()[p].data, theirs[p].sizes(), at::kFloat);
    EXPECT_LT((mine - theirs[p]).abs().max().item<float>(), 2e-6f) << weights->parameters()[p].name;
  }
}

TEST(AdamW, TheNormDoesNotDependOnTheThreads) {
  const auto weights = model::random_weights(small_config(), 3);
  std::vector<float> g(static_cast<std::size_t>(weights->parameter_count()));
  core::Rng rng(6);
  for (float& x : g) x = rng.normal();
  core::ThreadPool one(1), three(3);
  const double norm = global_norm(g, *weights, one);
  EXPECT_EQ(norm, global_norm(g, *weights, three));
  EXPECT_NEAR(norm, std::sqrt(std::inner_product(g.begin(), g.end(), g.begin(), 0.0)), 1e-9 * norm);
}

// A gradient that grows is followed with a lag.
TEST(AdamW, FollowsAGrowingGradientWithALag) {
  const double beta = 0.9;
  double m = 0;
  for (int t = 1; t <= 400; ++t) m = beta * m + (1 - beta) * t;  // g_t = t
  const double corrected = m / (1 - std::pow(beta, 400));
  EXPECT_NEAR(corrected, 400 - beta / (1 - beta), 1e-9);  // 391: nine steps behind
}

// The schedule's corners.
TEST(Schedule, HasTheRightCorners) {
  const Schedule s{.steps = 110, .warmup = 10, .peak = 1.0, .last = 0.2};
  EXPECT_DOUBLE_EQ(s.rate(0), 0.1);
  EXPECT_DOUBLE_EQ(s.rate(9), 1.0);
  EXPECT_DOUBLE_EQ(s.rate(10), 1.0);
  EXPECT_NEAR(s.rate(60), 0.6, 1e-12);  // half way down
  EXPECT_NEAR(s.rate(110), 0.2, 1e-12);
  EXPECT_NEAR(s.rate(1000), 0.2, 1e-12);
}

// A trainer learns a cycle by heart, the same way on any number of threads.
std::vector<double> losses_of_a_run(int threads, std::int64_t steps) {
  core::ThreadPool pool(threads);
  std::vector<std::int32_t> tokens(1000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 40);
  TrainerOptions options{.batch = 4, .context = 24};
  options.schedule = {.steps = steps, .warmup = 5, .peak = 1e-2, .last = 1e-3};
  Trainer trainer(model::random_weights(small_config(), 3), options, pool);
  std::vector<double> losses;
  for (std::int64_t s = 0; s < steps; ++s) losses.push_back(trainer.step(tokens).loss);
  losses.push_back(trainer.evaluate(tokens, 8));
  return losses;
}

TEST(Trainer, LearnsACycleByHeart) {
  const std::vector<double> losses = losses_of_a_run(2, 60);
  EXPECT_NEAR(losses.front(), std::log(40.0), 0.1);
  EXPECT_LT(losses[59], 0.1);
  EXPECT_LT(losses.back(), 0.1);
}

TEST(Trainer, ThreadsDoNotShow) {
  const std::vector<double> losses = losses_of_a_run(1, 12);
  EXPECT_EQ(losses, losses_of_a_run(2, 12));
  EXPECT_EQ(losses, losses_of_a_run(3, 12));
}

// The first loss is what the initial weights say.
TEST(Trainer, StartsWhereTheInitialWeightsSay) {
  core::ThreadPool pool(1);
  std::vector<std::int32_t> tokens(1000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 40);
  constexpr double s = 0.02, width = 32, vocabulary = 40;  // of small_config
  const double expected =
      std::log(vocabulary) + s * s * width / 2 + (std::exp(s * width) - 1) / vocabulary;
  const double luck = s * std::sqrt(width) / std::sqrt(vocabulary);
  constexpr int seeds = 16;
  double sum = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    TrainerOptions options{.batch = 4, .context = 24};
    options.schedule = {.steps = 1, .warmup = 1, .peak = 1e-2, .last = 1e-3};
    Trainer trainer(model::random_weights(small_config(), static_cast<std::uint64_t>(seed)),
                    options, pool);
    const double loss = trainer.step(tokens).loss;
    EXPECT_NEAR(loss, expected, 4 * luck) << seed;
    sum += loss;
  }
  EXPECT_NEAR(sum / seeds, expected, 4 * luck / std::sqrt(seeds));
}

// The arithmetic of the transcript.
TEST(Demo, TheTranscriptAddsUp) {
  constexpr double read = 800 * 8 * 128, kept = 126'350 - 126'350 / 20;
  labs::write_value("train-demo-transcript", "passes", read / kept);
  EXPECT_NEAR(read / kept, 6.8, 0.05);
  labs::write_value("train-demo-transcript", "perplexity", std::exp(2.88));
  EXPECT_NEAR(std::exp(2.88), 17.8, 0.05);
  EXPECT_NEAR(3.55 / std::log(2.0) / 2.54, 2.01, 0.01);
}

// The demonstration repeats itself byte for byte.
TEST(Demo, RepeatsItselfByteForByte) {
  const auto folder = std::filesystem::temp_directory_path() / "rose-demo-test";
  std::filesystem::create_directories(folder);
  std::vector<std::string> logs, samples;
  for (const int threads : {1, 2}) {
    core::ThreadPool pool(threads);
    DemoOptions options{.text = "book/1-foundations/18-a-first-training-run.md", .steps = 6};
    options.log = folder / std::to_string(threads);
    options.quiet = true;
    const DemoResult result = run_demo(options, stdout, pool);
    EXPECT_NEAR(result.first_loss, std::log(1024.0), 0.05);
    EXPECT_LT(result.last_loss, result.first_loss);
    EXPECT_EQ(result.before.substr(0, 9), "The model");
    EXPECT_NE(result.before, result.after);
    logs.push_back(core::read_file(options.log));
    samples.push_back(result.after);
  }
  EXPECT_EQ(std::count(logs[0].begin(), logs[0].end(), '\n'), 6);
  EXPECT_EQ(logs[0], logs[1]);
  EXPECT_EQ(samples[0], samples[1]);
  std::filesystem::remove_all(folder);
}

TEST(Demo, AMissingTextIsNamed) {
  try {
    run_demo({.text = "no/such/folder", .quiet = true});
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_EQ(error.code(), core::Code::not_found);
    EXPECT_EQ(error.argument(), "no/such/folder");
  }
}

// The numbers that this chapter's text mentions.
TEST(Demo, WritesTheNumbersOfTheText) {
  const auto weights = model::random_weights(demo_config(1024), 1);
  const double million = static_cast<double>(weights->parameter_count()) / 1e6;
  labs::write_value("train-demo-values", "ln-1024", std::log(1024.0));
  labs::write_value("train-demo-values", "demo-million-weights", million);
  EXPECT_NEAR(million, 0.87, 0.005);
}

}  // namespace
}  // namespace rose::trainer
