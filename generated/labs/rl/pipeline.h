// A pipeline small enough to be counted, and to be resumed to the bit.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

#include "labs/rl/estimators.h"
#include "labs/rl/process.h"
#include "rose/core/rng.h"

namespace rose::labs {

// Every attempt has exactly one fate.
enum class Fate : std::uint8_t { trained, uniform, crashed, alone };

/// uniform: its group agreed; crashed: the world broke; alone: nobody of its group was left.
struct Census {
  std::array<std::int64_t, 4> counts{};
  void add(Fate fate, std::size_t n = 1) {
    counts[static_cast<std::size_t>(fate)] += static_cast<std::int64_t>(n);
  }
  std::int64_t of(Fate fate) const { return counts[static_cast<std::size_t>(fate)]; }
  std::int64_t attempts() const {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
};

// Attempt a task as the agent would: the state inside, the history outside.
class Sampler {
 public:
  Sampler(Process process, const Tree& tree) : process_(std::move(process)) {
    for (std::size_t i = 0; i < tree.situations.size(); ++i) index_[tree.situations[i]] = i;
  }

  std::vector<Decision> attempt(const Policy& policy, core::Rng& rng) const {
    std::vector<Decision> steps;
    History history;
    std::size_t state = draw(process_.start, rng);
    while (steps.size() < process_.horizon) {
      const std::size_t situation = index_.at(history);
      std::vector<double> p;
      for (std::size_t a = 0; a < process_.actions; ++a)
        p.push_back(policy.probability(situation, a));
      const std::size_t action = draw(p, rng);
      const auto events = process_.step(state, action);
      std::vector<double> chances;
      for (const Event& e : events) chances.push_back(e.probability);
      const Event& e = events[draw(chances, rng)];
      steps.push_back({situation, action, e.reward});
      if (e.last) break;
      history.insert(history.end(), {action, e.observation});
      state = e.next;
    }
    return steps;
  }

 private:
  static std::size_t draw(const std::vector<double>& p, core::Rng& rng) {
    double u = rng.uniform();
    for (std::size_t i = 0; i + 1 < p.size(); ++i) {
      if (u < p[i]) return i;
      u -= p[i];
    }
    return p.size() - 1;
  }
  Process process_;
  std::map<History, std::size_t> index_;
};

// A run is weights, an update number and a position of the generator.
struct Settings {
  std::size_t groups = 4, group = 8;  ///< per update
  double rate = 0.5;
  double crash = 0;  ///< chance that the world breaks an attempt
  std::uint64_t seed = 1;
};

struct Training {
  std::vector<double> logits;
  std::int64_t updates = 0;
  std::uint64_t position = 0;
  Census census;
};

/// Goes on for so many updates. Sampling is synchronous: every attempt is by the current policy.
inline Training advance(Training run, const Sampler& sampler, Policy policy, const Settings& s,
                        int updates) {
  std::ranges::copy(run.logits, policy.logits().begin());
  core::Rng rng(s.seed, 0, run.position);
  for (; updates > 0; --updates, ++run.updates) {
    std::vector<double> step(policy.logits().size());
    for (std::size_t g = 0; g < s.groups; ++g) {
      std::vector<std::vector<Decision>> kept;
      std::vector<double> rewards;
      for (std::size_t i = 0; i < s.group; ++i) {
        auto attempt = sampler.attempt(policy, rng);
        if (rng.uniform() < s.crash) {
          run.census.add(Fate::crashed);
          continue;
        }
        double sum = 0;
        for (const Decision& d : attempt) sum += d.reward;
        rewards.push_back(sum);
        kept.push_back(std::move(attempt));
      }
      const bool equal =
          std::ranges::adjacent_find(rewards, std::ranges::not_equal_to{}) == rewards.end();
      const Fate fate = kept.size() < 2 ? Fate::alone : equal ? Fate::uniform : Fate::trained;
      run.census.add(fate, kept.size());
      if (fate != Fate::trained) continue;
      const auto a = leave_one_out(rewards);
      for (std::size_t i = 0; i < kept.size(); ++i)
        for (const Decision& d : kept[i]) policy.add_score(d, a[i], step);
    }
    const auto attempts = static_cast<double>(s.groups * s.group);
    for (std::size_t i = 0; i < step.size(); ++i) policy.logits()[i] += s.rate * step[i] / attempts;
  }
  run.logits.assign(policy.logits().begin(), policy.logits().end());
  run.position = rng.position();
  return run;
}

}  // namespace rose::labs
