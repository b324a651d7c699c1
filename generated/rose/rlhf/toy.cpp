// Sample, compare, step.

#include "rose/rlhf/toy.h"

#include <fmt/format.h>

#include <cmath>

#include "rose/core/rng.h"
#include "rose/rlhf/group_advantages.h"
#include "rose/rlhf/policy_loss.h"
#include "rose/rlhf/presets.h"
#include "rose/rlhf/token_advantages.h"
#include "rose/rlhf/transcript.h"

namespace rose::rlhf {

namespace {

// Draw one token, and note how.
SampledToken sample(const ToyPolicy& policy, std::span<const std::int32_t> history,
                    std::span<const std::int32_t> allowed, std::int64_t version, core::Rng& rng) {
  const ToyPolicy::Logits logits = policy.logits(history);
  const double u = rng.uniform64();
  double below = 0;
  SampledToken token;
  token.version = version;
  token.support.assign(allowed.begin(), allowed.end());
  for (const std::int32_t id : allowed) {
    const double logprob = score_row(logits, {id, 1, allowed}).logprob;
    token.id = id;
    token.behaviour = static_cast<float>(logprob);
    below += std::exp(logprob);
    if (u < below) break;
  }
  token.raw = static_cast<float>(score_row(logits, {token.id, 1, {}}).logprob);
  return token;
}

// One step on a batch.
struct Packed {
  std::vector<std::size_t> starts = {0};
  std::vector<std::uint8_t> mask;
  std::vector<double> behaviour, advantage;
};

Packed pack(const std::vector<Trajectory>& batch, std::span<const double> advantages) {
  Packed p;
  for (std::size_t k = 0; k < batch.size(); ++k) {
    const Trajectory& t = batch[k];
    p.mask.insert(p.mask.end(), t.trained.begin(), t.trained.end());
    p.behaviour.insert(p.behaviour.end(), t.behaviour.begin(), t.behaviour.end());
    const std::vector<double> spread = broadcast(t, advantages[k]);
    p.advantage.insert(p.advantage.end(), spread.begin(), spread.end());
    p.starts.push_back(p.mask.size());
  }
  return p;
}

template <class F>
void for_trained(const std::vector<Trajectory>& batch, F&& f) {
  std::size_t at = 0;
  for (const Trajectory& t : batch)
    for (std::size_t i = 0; i < t.tokens.size(); ++i, ++at)
      if (t.trained[i] != 0)
        f(at, std::span<const std::int32_t>(t.tokens).first(i), Draw{t.tokens[i], 1, t.support[i]});
}

Diagnostics learn(ToyPolicy& policy, const std::vector<Trajectory>& batch, const Packed& packed,
                  const ToyOptions& options) {
  std::vector<double> current(packed.mask.size());
  for_trained(batch, [&](std::size_t at, auto history, const Draw& draw) {
    current[at] = double{static_cast<float>(score_row(policy.logits(history), draw).logprob)};
  });
  const Objective objective = dapo();
  const ObjectiveResult result = evaluate(
      objective, {packed.starts, packed.mask, current, packed.behaviour, {}, {}, packed.advantage});
  const double entropy = options.entropy / result.seen.tokens;
  for_trained(batch, [&](std::size_t at, auto history, const Draw& draw) {
    ToyPolicy::Logits row = policy.logits(history);
    differentiate_row(row, draw, result.weights[at], entropy);
    policy.accumulate(history, row);
  });
  policy.step(options.rate);
  return result.seen;
}

double evaluate_toy(const ToyPolicy& policy, const ToyOptions& options) {
  double successes = 0;
  for (int k = 0; k < options.evaluation_episodes; ++k) {
    const auto task = options.seed * 1'000'003 + static_cast<std::uint64_t>(k) + (1ULL << 40);
    successes += total_reward(toy_episode(policy, task, 0, 0, options.turns));
  }
  return successes / options.evaluation_episodes;
}

}  // namespace

// One episode.
Trajectory toy_episode(const ToyPolicy& policy, std::uint64_t task, std::uint64_t attempt,
                       std::int64_t version, int turns) {
  const ToyWorld world(task);
  core::Rng rng(task, attempt);
  Trajectory start;
  start.task = start.group = fmt::format("{}", task);
  start.id = fmt::format("{}/{}", task, attempt);
  start.seed = attempt;
  start.environment = "doors";
  start.environment_version = "1";
  Transcript transcript(start);
  transcript.observe(world.reset());
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<std::int32_t> history(transcript.tokens().begin(), transcript.tokens().end());
    std::vector<std::int32_t> action;
    std::vector<SampledToken> tokens;
    while (action.size() < 2) {
      tokens.push_back(sample(policy, history, ToyWorld::allowed(action), version, rng));
      action.push_back(tokens.back().id);
      history.push_back(tokens.back().id);
    }
    transcript.act(tokens);
    const ToyWorld::Outcome outcome = world.step(action[0], action[1]);
    if (outcome.over) transcript.reward("verdict", outcome.reward);
    transcript.observe(std::vector<std::int32_t>{outcome.observation});
    if (outcome.over) return transcript.finish(Ending::terminated, "done").front();
  }
  return transcript.finish(Ending::truncated, "turns").front();
}

// The circle.
ToyResult train_toy(const ToyOptions& options,
                    const std::function<void(const ToyPoint&)>& progress) {
  ToyPolicy policy;
  ToyResult result;
  for (int update = 0; update < options.updates && !result.reached; ++update) {
    std::vector<Trajectory> batch;
    std::vector<double> rewards;
    std::vector<std::int32_t> groups;
    for (int task = 0; task < options.tasks; ++task) {
      const auto name = options.seed * 1'000'003 + static_cast<std::uint64_t>(update) * 4096 +
                        static_cast<std::uint64_t>(task);
      for (int attempt = 0; attempt < options.group; ++attempt) {
        batch.push_back(
            toy_episode(policy, name, static_cast<std::uint64_t>(attempt), update, options.turns));
        rewards.push_back(total_reward(batch.back()));
        groups.push_back(task);
        result.tokens += static_cast<std::int64_t>(trained_tokens(batch.back()));
        if (options.record) options.record(batch.back());
      }
    }
    result.episodes += std::ssize(batch);
    const Packed packed = pack(batch, per_group({rewards, groups}, [](const auto& r) {
                                 return group_standardised(r, Deviation::population);
                               }));
    ToyPoint point{.update = update + 1};
    for (const double r : rewards) point.training += r / static_cast<double>(rewards.size());
    for (int epoch = 0; epoch < options.epochs; ++epoch) {
      point.last = learn(policy, batch, packed, options);
      if (epoch == 0) point.first = point.last;
    }
    if (point.update % options.evaluate_every == 0 || point.update == options.updates) {
      result.success = point.evaluated = evaluate_toy(policy, options);
      result.reached = result.success >= options.target;
    }
    result.curve.push_back(point);
    if (progress) progress(point);
  }
  return result;
}

}  // namespace rose::rlhf
