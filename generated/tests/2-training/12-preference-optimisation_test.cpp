// Tests of the chapter "Preference optimisation".

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
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/files.h"
#include "rose/core/rng.h"
#include "rose/text/bpe_trainer.h"
#include "rose/trainer/cpu_compute.h"
#include "rose/trainer/preference.h"
#include "rose/trainer/preference_compute.h"
#include "rose/trainer/preference_task.h"
#include "rose/trainer/run.h"
#include "rose/trainer/task.h"

namespace rose::trainer {
namespace {

// Random pairs, and the losses in PyTorch's operations.
struct Pair {
  AnswerScore chosen, rejected;
};

std::vector<Pair> random_pairs() {
  std::vector<Pair> out{{{-10, -11, 5}, {-12, -11.5, 4}},
                        {{-300, -1, 9}, {-2, -400, 7}},
                        {{-1, -300, 3}, {-500, -2, 8}}};
  core::Rng rng(8);
  const auto draw = [&](double scale) { return -scale * (0.02 + rng.uniform64()); };
  for (int i = 0; i < 40; ++i) {
    out.push_back(
        {{draw(60), draw(60), 1 + rng.below(30)}, {draw(60), draw(60), 1 + rng.below(30)}});
  }
  return out;
}

/// The loss in PyTorch's operations, of log-probabilities (winner, loser).
at::Tensor theirs(const PreferenceOptions& o, const Pair& pair, const at::Tensor& policy) {
  const at::Tensor w = policy[0], l = policy[1];
  const at::Tensor rw = w - pair.chosen.reference, rl = l - pair.rejected.reference;
  const at::Tensor mw = w / static_cast<double>(pair.chosen.tokens),
                   ml = l / static_cast<double>(pair.rejected.tokens);
  const auto odds = [](const at::Tensor& m) { return m - at::log1p(-at::exp(m)); };
  switch (o.loss) {
    case PreferenceLoss::dpo: {
      const at::Tensor h = o.beta * (rw - rl);
      return -(1 - o.smoothing) * at::log_sigmoid(h) - o.smoothing * at::log_sigmoid(-h) -
             o.anchor * mw;
    }
    case PreferenceLoss::ipo: return at::pow(rw - rl - 1 / (2 * o.beta), 2) - o.anchor * mw;
    case PreferenceLoss::simpo:
      return -at::log_sigmoid(o.beta * (mw - ml) - o.margin) - o.anchor * mw;
    case PreferenceLoss::orpo: return -mw - o.beta * at::log_sigmoid(odds(mw) - odds(ml));
    case PreferenceLoss::kto: break;
  }
  return at::Tensor();
}

// Losses and weights agree with autograd and with differences.
const std::vector<PreferenceOptions>& pair_options() {
  using enum PreferenceLoss;
  static const std::vector<PreferenceOptions> all{
      {.loss = dpo, .beta = 0.5},
      {.loss = dpo, .beta = 0.1, .smoothing = 0.2, .anchor = 0.7},
      {.loss = ipo, .beta = 0.5},
      {.loss = ipo, .beta = 0.05, .anchor = 0.1},
      {.loss = simpo, .beta = 2, .margin = 1},
      {.loss = simpo, .beta = 2.5, .margin = 1.375, .anchor = 0.5},
      {.loss = orpo, .beta = 0.1}};
  return all;
}

TEST(Preference, AgreesWithAutogradAndWithDifferences) {
  for (const PreferenceOptions& o : pair_options()) {
    for (const Pair& pair : random_pairs()) {
      at::Tensor policy = at::tensor({pair.chosen.policy, pair.rejected.policy}, at::kDouble);
      policy.requires_grad_(true);
      const at::Tensor loss = theirs(o, pair, policy);
      const at::Tensor gradient =
          torch::autograd::grad({loss}, {policy}, {}, std::nullopt, false, true)[0];
      const PreferenceValue ours = preference(o, pair.chosen, pair.rejected);
      const auto near = [](double a, double b) {
        return std::abs(a - b) <= 1e-12 + 1e-10 * std::abs(b);
      };
      EXPECT_TRUE(near(ours.loss, loss.item<double>())) << ours.loss << " " << loss.item<double>();
      EXPECT_TRUE(near(ours.chosen, gradient[0].item<double>())) << ours.chosen;
      EXPECT_TRUE(near(ours.rejected, gradient[1].item<double>())) << ours.rejected;
      for (const bool chosen : {true, false}) {
        const double h = 1e-4;
        const auto at_offset = [&](double offset) {
          Pair moved = pair;
          (chosen ? moved.chosen : moved.rejected).policy += offset;
          return preference(o, moved.chosen, moved.rejected).loss;
        };
        const double slope = (at_offset(h) - at_offset(-h)) / (2 * h),
                     ours_slope = chosen ? ours.chosen : ours.rejected;
        EXPECT_NEAR(slope, ours_slope,
                    1e-6 * (1 + std::abs(ours_slope)) + 1e-8 * std::abs(ours.loss) / h);
      }
    }
  }
}

// The numbers by hand come out.
TEST(Preference, GivesTheNumbersByHand) {
  const AnswerScore w{-10, -11, 5}, l{-12, -11.5, 4};
  using enum PreferenceLoss;
  const auto of_one = rose::trainer::kto;  // the function, not the name of the loss
  const PreferenceValue dpo_value = preference({.loss = dpo, .beta = 0.5}, w, l);
  EXPECT_NEAR(dpo_value.loss, 0.3869, 5e-5);
  EXPECT_NEAR(dpo_value.chosen, -0.1604, 5e-5);
  EXPECT_EQ(dpo_value.rejected, -dpo_value.chosen);
  const PreferenceValue ipo_value = preference({.loss = ipo, .beta = 0.5}, w, l);
  EXPECT_DOUBLE_EQ(ipo_value.loss, 0.25);
  EXPECT_DOUBLE_EQ(ipo_value.chosen, 1.0);  // too far apart already: pulls back
  EXPECT_NEAR(preference({.loss = simpo, .beta = 2, .margin = 1}, w, l).loss, 0.3133, 5e-5);
  EXPECT_NEAR(preference({.loss = orpo, .beta = 0.1}, w, l).loss, 2.0289, 5e-5);
  const PreferenceOptions single{.loss = PreferenceLoss::kto, .beta = 0.5, .bad = 2};
  EXPECT_NEAR(of_one(single, w, true, 0.2).loss, 0.4013, 5e-5);
  for (const bool good : {true, false}) {
    at::Tensor policy = at::tensor({w.policy}, at::kDouble);
    policy.requires_grad_(true);
    const at::Tensor ratio = policy[0] - w.reference;
    const at::Tensor loss =
        good ? 1 - at::sigmoid(0.5 * (ratio - 0.2)) : 2 * (1 - at::sigmoid(0.5 * (0.2 - ratio)));
    const at::Tensor gradient = torch::autograd::grad({loss}, {policy})[0];
    EXPECT_NEAR(of_one(single, w, good, 0.2).loss, loss.item<double>(), 1e-14);
    EXPECT_NEAR(of_one(single, w, good, 0.2).chosen, gradient[0].item<double>(), 1e-14);
  }
}

// Some answers, and a small model.
std::vector<ChatSequence> answer_items() {
  std::vector<ChatSequence> out;
  core::Rng rng(5);
  for (int i = 0; i < 6; ++i) {
    ChatSequence s{.ids = {}, .learnt = {}, .where = ""};
    for (int t = 0; t < 6 + 2 * i; ++t) {
      s.ids.push_back(static_cast<std::int32_t>(rng.below(40)));
      s.learnt.push_back(t > 3 ? 1 : 0);
    }
    out.push_back(s);
  }
  return out;
}

// The gradient of a model is the slope of the loss.
TEST(PreferenceCompute, GivesTheSlopeOfTheLoss) {
  core::ThreadPool pool(2);
  model::Config config;
  config.family = model::Family::llama;
  config.vocab_size = 40, config.layers = 1, config.hidden = 16, config.heads = 2;
  config.kv_heads = 1, config.head_dim = 8, config.ffn = 24, config.max_positions = 32;
  config.tied_head = true;
  const std::vector<ChatSequence> items = answer_items();
  MicroBatchBuffer batch;
  batch.clear();
  for (const ChatSequence& s : items) push_sequence(s, batch);
  using enum PreferenceLoss;
  for (const PreferenceOptions& o :
       {PreferenceOptions{.loss = dpo, .beta = 0.5, .smoothing = 0.1},
        PreferenceOptions{.loss = ipo, .beta = 0.5}, PreferenceOptions{.loss = kto, .beta = 0.5},
        PreferenceOptions{.loss = simpo, .beta = 2, .margin = 1},
        PreferenceOptions{.loss = orpo, .beta = 0.5}}) {
    const auto weights = model::random_weights(config, 3);
    for (const model::Parameter& p : weights->parameters())
      for (float& x : p.f32()) x *= p.shape.size() == 2 ? 6.0f : 1.0f;
    const auto record = std::make_shared<PreferenceRecord>();
    auto known = std::make_shared<KnownAnswers>();
    CpuCompute reference(weights, {}, pool);
    std::size_t number = 0;
    for (const auto& [key, logprob] : answer_logprobs(reference, items, 30))
      (*known)[key] = {logprob + (++number % 2 == 0 ? 1.5 : -1.0), number % 3 != 0};
    ASSERT_EQ(known->size(), items.size());
    auto device = std::make_unique<CpuCompute>(weights, ComputeOptions{}, pool);
    const CpuCompute& inside = *device;
    PreferenceCompute compute(std::move(device), o, known, record);
    compute.zero_gradients();
    const LossSum sum = compute.accumulate(batch.view(), 1.0);
    EXPECT_EQ(sum.weight, 3.0);
    EXPECT_EQ(compute.evaluate(batch.view()).loss, sum.loss);
    if (o.loss == kto)
      continue;  // its reference point moves with the weights, and takes no derivative
    for (std::size_t p = 0; p < weights->parameters().size(); ++p) {
      const std::span<float> values = weights->parameters()[p].f32();
      const std::span<const float> gradient = inside.gradients().parameter(p);
      const auto at = static_cast<std::size_t>(
          std::ranges::max_element(gradient, {}, [](float g) { return std::abs(g); }) -
          gradient.begin());
      const float kept = values[at], h = 2e-3f;
      values[at] = kept + h;
      const double up = compute.evaluate(batch.view()).loss;
      values[at] = kept - h;
      const double down = compute.evaluate(batch.view()).loss;
      values[at] = kept;
      const double slope = (up - down) / (2 * double{h});
      EXPECT_NEAR(double{gradient[at]}, slope, 0.01 * std::abs(slope) + 2e-3)
          << weights->parameters()[p].name << " " << static_cast<int>(o.loss);
    }
  }
}

// Where each loss ends, for one pair and an answer that nobody compared.
struct End {
  double chosen, rejected, third;
};

/// Gradient descent on three logits. With `shared` the first two are one parameter's: it counts once in the preferred
/// answer's logit and `shared` times in the rejected one's.
End descend(const PreferenceOptions& o, double shared, int steps) {
  const std::array<double, 3> start{std::log(0.3), std::log(0.4), std::log(0.3)};
  std::array<double, 3> z = start;
  const auto probabilities = [&] {
    std::array<double, 3> p{};
    double total = 0;
    for (std::size_t i = 0; i < 3; ++i) total += p[i] = std::exp(z[i]);
    for (double& x : p) x /= total;
    return p;
  };
  for (int step = 0; step < steps; ++step) {
    const auto p = probabilities();
    const PreferenceValue v =
        preference(o, {std::log(p[0]), start[0], 1}, {std::log(p[1]), start[1], 1});
    std::array<double, 3> slope{};
    for (std::size_t i = 0; i < 3; ++i)
      slope[i] = v.chosen * ((i == 0 ? 1 : 0) - p[i]) + v.rejected * ((i == 1 ? 1 : 0) - p[i]);
    z[0] -= 0.1 * (slope[0] + shared * slope[1]);
    z[1] -= 0.1 * (shared * slope[0] + (shared == 0 ? 1 : shared * shared) * slope[1]);
    z[2] -= 0.1 * slope[2];
  }
  const auto p = probabilities();
  return {p[0], p[1], p[2]};
}

TEST(Preference, WhereEachLossEnds) {
  using enum PreferenceLoss;
  const std::map<std::string, PreferenceOptions> all{
      {"dpo", {.loss = dpo, .beta = 0.5}},
      {"anchored", {.loss = dpo, .beta = 0.5, .anchor = 0.5}},
      {"ipo", {.loss = ipo, .beta = 0.25}},
      {"simpo", {.loss = simpo, .beta = 2, .margin = 1}},
      {"orpo", {.loss = orpo, .beta = 0.5}}};
  for (const auto& [name, options] : all) {
    const End end = descend(options, 0.0, 3000);
    labs::write_value("preference-table-test", name + "-chosen", end.chosen);
    labs::write_value("preference-table-test", name + "-rejected", end.rejected);
    labs::write_value("preference-table-test", name + "-third", end.third);
    EXPECT_GT(end.chosen, end.rejected) << name;
  }
  const End square =
      descend(all.at("ipo"), 0.0, 3000);  // stops where the ratios differ by 1 / (2 tau)
  EXPECT_NEAR(std::log(square.chosen / 0.3) - std::log(square.rejected / 0.4), 2.0, 1e-6);
  const End alone = descend(all.at("dpo"), 0.0, 3000),
            held = descend(all.at("anchored"), 0.0, 3000);
  EXPECT_GT(held.chosen, alone.chosen);  // the anchor takes from the third answer, too
  EXPECT_LT(held.third, alone.third);
}

// A shared direction pulls the preferred answer down with the other.
TEST(Preference, ASharedDirectionPullsThePreferredAnswerDown) {
  using enum PreferenceLoss;
  const PreferenceOptions plain{.loss = dpo, .beta = 0.5},
      anchored{.loss = dpo, .beta = 0.5, .anchor = 0.5};
  const End apart = descend(plain, 0.0, 300), similar = descend(plain, 2.0, 300),
            held = descend(anchored, 2.0, 300);
  EXPECT_GT(apart.chosen, 0.3);
  EXPECT_LT(similar.chosen, 0.1);
  EXPECT_GT(similar.chosen, similar.rejected);  // the pair is told apart, and both are gone
  EXPECT_GT(held.chosen, 2 * similar.chosen);
  labs::write_value("preference-displacement-test", "chosen", similar.chosen);
  labs::write_value("preference-displacement-test", "third", similar.third);
  labs::write_value("preference-displacement-test", "held", held.chosen);
  // Each token of a long answer that gains as much as each of a short one makes a margin of its length alone.
  const AnswerScore long_answer{-198, -200, 200}, short_answer{-19.8, -20, 20};
  EXPECT_NEAR(preference({.loss = dpo, .beta = 0.1}, long_answer, short_answer).margin, 0.18,
              1e-12);
  EXPECT_NEAR(preference({.loss = simpo, .beta = 0.1}, long_answer, short_answer).margin, 0.0,
              1e-12);
}

}  // namespace
}  // namespace rose::trainer
