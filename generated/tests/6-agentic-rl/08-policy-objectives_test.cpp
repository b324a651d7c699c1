// Tests of the chapter "Policy objectives, in code".

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

#include "labs/evidence/values.h"
#include "rose/core/error.h"
#include "rose/core/rng.h"
#include "rose/rlhf/objective.h"
#include "rose/rlhf/policy_loss.h"
#include "rose/rlhf/presets.h"

namespace rose::rlhf {
namespace {

// Values and gradients of the reference batch.
using Numbers = std::vector<double>;

struct Reference {
  std::vector<std::size_t> starts = {0, 3, 5, 6};
  std::vector<std::uint8_t> mask = {1, 1, 1, 1, 1, 1};
  Numbers current = {-.9, -.6, -.3, -.1, -1, -2}, old = {-1, -.5, -.7, -.2, -.7, -2.3},
          behaviour = {-1.05, -.5, -.6, -.2, -.8, -2.1}, advantage = {1, 1, 1, -.5, -.5, .25};
  PolicyBatch batch() const { return {starts, mask, current, old, behaviour, {}, advantage}; }
};

void expect_golden(const char* name, const Objective& objective, double value,
                   const Numbers& gradient, bool token_advantages = false) {
  Reference reference;
  if (token_advantages) reference.advantage = {1, -2, .5, -.5, 1, .25};
  const ObjectiveResult found = evaluate(objective, reference.batch());
  EXPECT_NEAR(found.value, value, 6e-7) << name;
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(found.weights[i], gradient[i], 6e-7) << name << " " << i;
}

TEST(Objectives, AgreeWithTheReferenceNumbers) {
  const Numbers clipped = {.184195, .150806, 0, -.092098, 0, 0};
  expect_golden("reinforce", reinforce(), -.583333,
                {.333333, .333333, .333333, -.166667, -.166667, .083333});
  expect_golden("ppo", ppo(), .426237, clipped);
  expect_golden("grpo", grpo(.2, 0), .297903, {.122797, .100537, 0, -.092098, 0, 0});
  expect_golden("dapo", dapo(), .442904, clipped);
  expect_golden("dr_grpo", dr_grpo(4), .213119, {.092098, .075403, 0, -.046049, 0, 0});
  expect_golden("ppo, tokens", ppo(), .063955, {.184195, -.301612, 0, -.092098, .123470, 0}, true);
  expect_golden("gspo, tight", gspo(3e-4, 4e-4), .250217, Numbers(6));
  const Numbers wide = {.126959, .126959, .126959, -.075403, -.075403, 0};
  expect_golden("gspo", gspo(.2, .27), .335904, wide);
  expect_golden("gspo-token", gspo_token(.2, .27), .335904, wide);
  expect_golden("gspo-token, tokens", gspo_token(.2, .27), .117757,
                {.126959, -.253918, .063479, -.075403, .150806, 0}, true);
  expect_golden("sapo", sapo(), .612126, {.122458, .100310, .156125, -.091817, -.060606, .109115});
  expect_golden("sapo, tokens", sapo(), .288062,
                {.122458, -.200574, .078063, -.091817, .121419, .109115}, true);
}

// Detached weights and corrections on the reference batch.
TEST(Objectives, AgreeWithTheReferenceNumbersWhereWeightsAreDetached) {
  expect_golden("cispo", cispo(.2), -.345315, {.184195, .150806, .2, -.092098, -.061735, .05});
  expect_golden("dis", dis(.3, 5), -.346912,
                {.193639, .150806, .224976, -.092098, -.068228, .046049});
  expect_golden("dis, tight", dis(.3, .25), -.279419,
                {.193639, .150806, 0, -.092098, -.068228, .046049});
  expect_golden("dis, attached", dis(.3, 5, true), -.346912,
                {.019364, .060322, .157484, -.082888, 0, -.046049});
  expect_golden("tis", with_tis(ppo(), 1.02), .400492, {.187879, .150806, 0, -.092098, 0, 0});
  expect_golden("icepop", with_icepop(ppo(), .95, 1.08), .252348,
                {.193639, .150806, 0, -.092098, 0, 0});
  expect_golden("aipo", aipo(1.2), .430169, {.193639, .150806, 0, -.092098, -.068228, .046049});
  const ObjectiveResult seen = evaluate(ppo(), Reference().batch());
  EXPECT_NEAR(seen.seen.clipped_up, 2.0 / 6, 1e-12);
  EXPECT_NEAR(seen.seen.clipped_down, 1.0 / 6, 1e-12);
  const double accepted = evaluate(dis(.3, .25), Reference().batch()).value;
  Objective others = dis(.3, .25);
  others.denominator = Denominator::accepted;
  EXPECT_NEAR(evaluate(others, Reference().batch()).value, accepted * 6 / 5, 1e-12);
}

// Laws of every objective.
std::map<std::string, Objective> all_objectives() {
  return {{"reinforce", reinforce()},
          {"ppo", ppo()},
          {"dual clip", ppo(.2, 3)},
          {"grpo", grpo(.2, .04)},
          {"dapo", dapo()},
          {"dr_grpo", dr_grpo(8)},
          {"gspo", gspo(.2, .27)},
          {"gspo_token", gspo_token(.2, .27)},
          {"sapo", sapo()},
          {"cispo", cispo(.2)},
          {"dis", dis(.3, 5)},
          {"aipo", aipo(1.2)},
          {"decoupled", decoupled_ppo()},
          {"dppo", dppo(.05)},
          {"up_grpo", up_grpo(.2, 3)},
          {"tis", with_tis(ppo(), 1.02)},
          {"icepop", with_icepop(ppo(), .9, 1.1)}};
}

struct Drawn : Reference {
  Numbers reference;
  explicit Drawn(core::Rng& rng, double spread) : reference(6) {
    for (std::size_t i = 0; i < 6; ++i) {
      old[i] = -0.2 - 2 * rng.uniform64();
      current[i] = std::min(-1e-3, old[i] + spread * double{rng.normal()});
      behaviour[i] = std::min(-1e-3, old[i] + 0.3 * spread * double{rng.normal()});
      reference[i] = std::min(-1e-3, old[i] + spread * double{rng.normal()});
      advantage[i] = double{rng.normal()};
    }
  }
  PolicyBatch whole() const {
    return {starts, mask, current, old, behaviour, reference, advantage};
  }
};

// Slopes are those of finite differences where nothing is detached.
TEST(Objectives, HaveTheGradientOfTheirValue) {
  core::Rng rng(1);
  for (const char* name : {"reinforce", "ppo", "dual clip", "grpo", "dapo", "dr_grpo", "gspo",
                           "sapo", "aipo", "decoupled", "tis", "icepop"}) {
    const Objective objective = all_objectives().at(name);
    for (int round = 0; round < 50; ++round) {
      Drawn drawn(rng, 0.2);
      const ObjectiveResult found = evaluate(objective, drawn.whole());
      for (std::size_t i = 0; i < 6; ++i) {
        const double h = 1e-6, at = drawn.current[i];
        drawn.current[i] = at + h;
        const double up = evaluate(objective, drawn.whole()).value;
        drawn.current[i] = at - h;
        const double down = evaluate(objective, drawn.whole()).value;
        drawn.current[i] = at;
        ASSERT_NEAR(found.weights[i], (up - down) / (2 * h), 2e-7) << name;
      }
    }
  }
}

// Padding, packing and the first step.
TEST(Objectives, DoNotSeePaddingAndSplitExactly) {
  core::Rng rng(2);
  for (const auto& [name, objective] : all_objectives()) {
    Drawn drawn(rng, 0.2);
    const ObjectiveResult plain = evaluate(objective, drawn.whole());
    Drawn padded = drawn;  // an observation full of nothing inside the first sequence
    for (Numbers* column :
         {&padded.current, &padded.old, &padded.behaviour, &padded.reference, &padded.advantage})
      column->insert(column->begin() + 1, 2, NAN);
    padded.mask = {1, 0, 0, 1, 1, 1, 1, 1};
    padded.starts = {0, 5, 7, 8};
    const ObjectiveResult other = evaluate(objective, padded.whole());
    EXPECT_EQ(other.value, plain.value) << name;
    EXPECT_EQ(other.weights[1], 0);
    EXPECT_EQ(other.weights[3], plain.weights[1]) << name;

    // two halves with the denominator of the whole
    const double below = denominator(objective, drawn.whole());
    PolicyBatch first = drawn.whole(), second = first;
    const std::vector<std::size_t> head = {0, 3}, tail = {0, 2, 3};
    first.starts = head;
    second.starts = tail;
    const auto cut = [](auto& column, std::size_t from, std::size_t n) {
      column = column.subspan(from, n);
    };
    for (auto [batch, from] : {std::pair{&first, 0}, std::pair{&second, 3}}) {
      const auto at = static_cast<std::size_t>(from);
      cut(batch->mask, at, 3);
      for (auto* c :
           {&batch->current, &batch->old, &batch->behaviour, &batch->reference, &batch->advantage})
        cut(*c, at, 3);
    }
    const double sum =
        evaluate(objective, first, below).value + evaluate(objective, second, below).value;
    EXPECT_NEAR(sum, plain.value, 1e-12) << name;
  }
}

TEST(Objectives, AreThePolicyGradientAtTheFirstStep) {
  core::Rng rng(3);
  for (auto [name, objective] : all_objectives()) {
    Drawn drawn(rng, 0.2);
    drawn.old = drawn.behaviour = drawn.reference = drawn.current;
    drawn.advantage = {1, 1, 1, -.5, -.5, .25};
    objective.average = Average::sequence_mean_token_mean;
    const ObjectiveResult found = evaluate(objective, drawn.whole());
    EXPECT_EQ(found.seen.ratio_min, 1) << name;
    EXPECT_EQ(found.seen.ratio_max, 1) << name;
    EXPECT_NEAR(found.seen.effective, 1, 1e-15);
    const double expected[] = {1.0 / 9, 1.0 / 9, 1.0 / 9, -1.0 / 12, -1.0 / 12, 1.0 / 12};
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(found.weights[i], expected[i], 1e-12) << name;
  }
}

// What is refused.
TEST(Objectives, RefuseWhatTheyCannotCompute) {
  const auto refusal = [](const Objective& objective,
                          const std::function<void(Reference&)>& spoil) {
    Reference reference;
    spoil(reference);
    try {
      (void)evaluate(objective, reference.batch());
    } catch (const core::Error& error) {
      return std::string(error.what());
    }
    return std::string("computed");
  };
  const auto keep = [](Reference&) {};
  EXPECT_EQ(refusal(ppo(), keep), "computed");
  EXPECT_EQ(refusal(ppo(), [](auto& r) { r.mask.assign(6, 0); }), "mask: it selects nothing");
  EXPECT_EQ(refusal(ppo(), [](auto& r) { r.old.pop_back(); }), "old: 5 entries for 6 tokens");
  EXPECT_EQ(refusal(dis(.3, 5), [](auto& r) { r.behaviour.clear(); }),
            "behaviour: this objective needs these log-probabilities, and the batch has none");
  EXPECT_EQ(refusal(ppo(), [](auto& r) { r.current[2] = -INFINITY; }), "current: token 2 has -inf");
  EXPECT_EQ(refusal(ppo(),
                    [](auto& r) {
                      r.starts = {0, 4, 3, 6};
                    }),
            "starts: sequences do not cover the tokens in order");
  EXPECT_EQ(refusal(dr_grpo(0), keep),
            "length: the constant average needs a positive budget of tokens");
  EXPECT_EQ(refusal(with_tis(dis(.3, 5), 2), keep),
            "correction: a direct ratio already contains it: it would count twice");
}

TEST(Objectives, TheCriticsLossIsClippedFromAbove) {
  const Numbers values = {1, 3}, old = {1, 1}, targets = {0, 4};
  const std::vector<std::uint8_t> mask = {1, 1};
  const ObjectiveResult plain = value_loss(values, old, targets, mask, 0);
  EXPECT_NEAR(plain.value, (0.5 + 0.5) / 2, 1e-12);
  const ObjectiveResult clipped = value_loss(values, old, targets, mask, 0.5);
  EXPECT_NEAR(clipped.value, (0.5 + 2.5 * 2.5 / 2) / 2, 1e-12);
  EXPECT_EQ(clipped.weights[1], 0);
}

// A row's gradient is that of its value.
TEST(PolicyLoss, RowsHaveTheGradientOfTheirValue) {
  core::Rng rng(4);
  const std::vector<std::int32_t> some = {0, 2, 3, 6};
  for (int round = 0; round < 40; ++round) {
    std::vector<float> logits(8);
    for (float& z : logits) z = 2 * rng.normal();
    const Draw draw{round % 2 == 0 ? 5 : 3, 0.5 + rng.uniform64(),
                    round % 2 == 0 ? std::span<const std::int32_t>{} : some};
    const double w = double{rng.normal()}, c = 0.3;
    std::vector<float> gradient = logits;
    const RowScore row = differentiate_row(gradient, draw, w, c);
    EXPECT_EQ(row.logprob, score_row(logits, draw).logprob);
    for (std::size_t v = 0; v < 8; ++v) {
      const auto value = [&](float h) {
        std::vector<float> moved = logits;
        moved[v] += h;
        const RowScore s = score_row(moved, draw);
        return w * s.logprob + c * s.entropy;
      };
      const float h = 0x1p-8f;
      EXPECT_NEAR(gradient[v], (value(h) - value(-h)) / double{2 * h}, 2e-4);
    }
    if (!draw.support.empty()) {
      EXPECT_EQ(gradient[1], 0);
    }
  }
  std::vector<float> logits(4);
  EXPECT_THROW(score_row(logits, {.token = 4}), core::Error);
  EXPECT_THROW(score_row(logits, {.token = 1, .temperature = 0}), core::Error);
  EXPECT_THROW(score_row(logits, {.token = 1, .support = some}), core::Error);
}

}  // namespace
}  // namespace rose::rlhf
